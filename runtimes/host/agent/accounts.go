package agent

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

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

// accountFiles are the files of local accounts in a directory, /etc.
type accountFiles struct{ dir string }

func (f accountFiles) read() (*accountDB, error) {
	db := &accountDB{}
	passwd, err := readTable(filepath.Join(f.dir, "passwd"), 7)
	if err != nil {
		return nil, err
	}
	for _, fields := range passwd {
		if u, ok := parseAccount(fields); ok {
			db.users = append(db.users, u)
		}
	}
	group, err := readTable(filepath.Join(f.dir, "group"), 4)
	if err != nil {
		return nil, err
	}
	for _, fields := range group {
		if gid, err := strconv.Atoi(fields[2]); err == nil {
			db.groups = append(db.groups, groupEntry{fields[0], gid, strings.Split(fields[3], ",")})
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

// add adds an account that is about to be made.
func (db *accountDB) add(op *runtimes.User) {
	db.users = append(db.users, account{op.Name, mark, op.UID, op.UID})
	db.groups = append(db.groups, groupEntry{name: op.Name, gid: op.UID})
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

// owner returns the ids of a user and group. Empty names mean the agent's own.
func (f accountFiles) owner(user, group string) (uid, gid int, err error) {
	uid, gid = os.Geteuid(), os.Getegid() // root, in berth-host
	if user == "" && group == "" {
		return uid, gid, nil
	}
	db, err := f.read()
	if err != nil {
		return 0, 0, err
	}
	if user != "" {
		u, ok := db.user(user)
		if !ok {
			return 0, 0, &Fault{Code: runtimes.CodeNotFound, Message: "no account " + plain(user) + " on this host"}
		}
		uid, gid = u.uid, u.gid
	}
	if group != "" {
		g, ok := db.group(group)
		if !ok {
			return 0, 0, &Fault{Code: runtimes.CodeNotFound, Message: "no group " + plain(group) + " on this host"}
		}
		gid = g.gid
	}
	return uid, gid, nil
}

// entry is a line of a table; an empty one: none.
type entry struct{ name, line string }

// edit replaces the lines of names in a table, or removes those that are empty. It
// keeps mode and owner, and does not make a missing table.
func (f accountFiles) edit(file string, entries []entry) error {
	p, err := open(filepath.Join(f.dir, file))
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.sweep(); err != nil {
		return err
	}
	table, st, err := p.openFile()
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer table.Close()
	var old, new bytes.Buffer
	if _, err := old.ReadFrom(table); err != nil {
		return ioFault(p.path, err)
	}
	replaced := map[string]bool{}
	for _, e := range entries {
		replaced[e.name] = true
	}
	for l := range bytes.Lines(old.Bytes()) {
		if name, _, ok := bytes.Cut(l, []byte(":")); !ok || !replaced[string(name)] {
			new.Write(l)
			if l[len(l)-1] != '\n' {
				new.WriteByte('\n')
			}
		}
	}
	for _, e := range entries {
		if e.line != "" {
			new.WriteString(e.line + "\n")
		}
	}
	if bytes.Equal(old.Bytes(), new.Bytes()) {
		return nil
	}
	return p.replace(new.Bytes(), st.Mode&0o777, int(st.Uid), int(st.Gid))
}

// lock takes the lock of the shadow suite (lckpwdf(3)).
func (f accountFiles) lock(ctx context.Context) (*os.File, error) {
	name := filepath.Join(f.dir, ".pwd.lock")
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, ioFault(name, err)
	}
	return waitLock(ctx, file, 0, false, "the account files are locked")
}
