package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"berth/runtimes"
)

// account is a line of passwd, groupEntry one of group.
type account struct {
	name, gecos string
	uid, gid    int
}

type groupEntry struct {
	name    string
	gid     int
	members []string
}

// accountDB has the accounts of /etc/passwd and /etc/group, without those of a
// directory service: files and daemons belong to local accounts.
type accountDB struct {
	users  []account
	groups []groupEntry
}

func (a *Agent) accounts() (*accountDB, error) {
	db := &accountDB{}
	passwd, err := readTable(filepath.Join(a.etc, "passwd"), 7)
	if err != nil {
		return nil, err
	}
	for _, f := range passwd {
		if u, ok := parseAccount(f); ok {
			db.users = append(db.users, u)
		}
	}
	group, err := readTable(filepath.Join(a.etc, "group"), 4)
	if err != nil {
		return nil, err
	}
	for _, f := range group {
		if gid, err := strconv.Atoi(f[2]); err == nil {
			db.groups = append(db.groups, groupEntry{f[0], gid, strings.Split(f[3], ",")})
		}
	}
	return db, nil
}

// parseAccount reads the fields of a line of passwd.
func parseAccount(f []string) (account, bool) {
	if len(f) != 7 {
		return account{}, false
	}
	uid, e1 := strconv.Atoi(f[2])
	gid, e2 := strconv.Atoi(f[3])
	return account{f[0], f[4], uid, gid}, e1 == nil && e2 == nil
}

// checkOrdinary refuses members of administrators' groups, who control the host.
func (db *accountDB) checkOrdinary(name string, gid int) error {
	for _, g := range db.groups {
		if slices.Contains(runtimes.AdminGroups(), g.name) && (g.gid == gid || slices.Contains(g.members, name)) {
			return refuse("%s is in the group %s, which administers this host", plain(name), plain(g.name))
		}
	}
	return nil
}

// readTable reads lines of colon-separated fields. It skips lines with another
// number of fields, such as those of NIS.
func readTable(name string, fields int) ([][]string, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, ioFault(name, err)
	}
	var table [][]string
	for line := range strings.Lines(string(b)) {
		if f := strings.Split(strings.TrimSuffix(line, "\n"), ":"); len(f) == fields && f[0] != "" {
			table = append(table, f)
		}
	}
	return table, nil
}

func (db *accountDB) user(name string) (account, bool) {
	return find(db.users, func(u account) bool { return u.name == name })
}

func (db *accountDB) uid(uid int) (account, bool) {
	return find(db.users, func(u account) bool { return u.uid == uid })
}

func (db *accountDB) group(name string) (groupEntry, bool) {
	return find(db.groups, func(g groupEntry) bool { return g.name == name })
}

func (db *accountDB) gid(gid int) (groupEntry, bool) {
	return find(db.groups, func(g groupEntry) bool { return g.gid == gid })
}

// find returns the first element that matches.
func find[T any](list []T, match func(T) bool) (found T, ok bool) {
	if i := slices.IndexFunc(list, match); i >= 0 {
		return list[i], true
	}
	return found, false
}

// supplementary returns the ids of an account's supplementary groups.
func (db *accountDB) supplementary(user string) []uint32 {
	var ids []uint32
	for _, g := range db.groups {
		if slices.Contains(g.members, user) {
			ids = append(ids, uint32(g.gid))
		}
	}
	return ids
}
