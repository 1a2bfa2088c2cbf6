package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"berth/runtimes"
)

// mark is the comment field of accounts that Berth made. An account is removed only if
// it has the mark and is recorded with its uid.
const mark = "managed by Berth"

// accountName has the names of POSIX that are no name of a directory and that no program reads as an
// option or a uid.
var accountName = regexp.MustCompile(`\A[0-9]{0,31}[A-Za-z][-A-Za-z0-9_.]{0,31}\z`)

const maxAccountName = 32

func isAccountName(name string) bool {
	return len(name) <= maxAccountName && accountName.MatchString(name)
}

// users makes and removes accounts.
type users struct {
	state    stateDir
	accounts accountFiles
	allow    *allowList
	getent   string // program that queries directory services; empty: none
}

// do makes accounts, or removes them if the operations say Absent, and writes each file
// once for all of them. It locks the password and makes no home directory, which may be on
// shared storage. The error is that of the operation after those whose results it returns.
func (u users) do(ctx context.Context, ops []*runtimes.User) ([]runtimes.Result, error) {
	lock, err := u.state.lock(ctx, lockAccounts, false)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	// The lock of useradd and similar tools, so that none of them writes meanwhile.
	shadow, err := u.accounts.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer shadow.Close()
	db, err := u.accounts.read()
	if err != nil {
		return nil, err
	}
	made := map[string]int{}
	found, err := u.state.readJSON(usersFile, &made)
	if err != nil {
		return nil, err
	}
	if !found || made == nil {
		made = map[string]int{}
	}
	for _, op := range ops { // those of a record that was lost or damaged
		if have, ok := db.user(op.Name); ok && have.uid == op.UID && have.gecos == mark {
			made[op.Name] = op.UID
		}
	}
	if ops[0].Absent {
		return u.remove(ctx, ops, db, made)
	}
	return u.add(ctx, ops, db, made)
}

// check refuses what cannot be an account of a user.
func (u users) check(op *runtimes.User) error {
	if !isAccountName(op.Name) {
		return invalid("%s is not an account name", plain(op.Name))
	}
	if !u.allow.uid(op.UID) {
		return refuse("uid %d is outside the range of this host's profile", op.UID)
	}
	return nil
}

func (u users) add(
	ctx context.Context, ops []*runtimes.User, db *accountDB, made map[string]int,
) (results []runtimes.Result, failed error) {
	var missing []*runtimes.User
	var at []int // the index of each in ops
	record := maps.Clone(made)
	for i, op := range ops {
		var lacks bool
		if lacks, failed = u.lacks(op, db, made); failed != nil {
			break
		}
		results = append(results, runtimes.Result{Changed: lacks})
		if lacks {
			missing, at = append(missing, op), append(at, i)
			made[op.Name] = op.UID
			db.add(op)
		}
	}
	if n, err := u.checkDirectory(ctx, missing); err != nil {
		results, missing, failed = results[:at[n]], missing[:n], err
	}
	if len(missing) == 0 {
		return results, failed
	}
	// The record first, so that an account that a crash leaves incomplete is known.
	for _, op := range missing {
		record[op.Name] = op.UID
	}
	if err := u.state.writeJSON(usersFile, record); err != nil {
		return results[:at[0]], err
	}
	day := time.Now().Unix() / 86400
	// passwd last: its line makes the account exist.
	for _, t := range []struct {
		file string
		line func(name string, id int) string
	}{
		{"group", func(name string, id int) string { return fmt.Sprintf("%s:x:%d:", name, id) }},
		{"gshadow", func(name string, _ int) string { return name + ":!::" }},
		{"shadow", func(name string, _ int) string { return fmt.Sprintf("%s:!:%d:0:99999:7:::", name, day) }},
		{"passwd", func(name string, id int) string {
			return fmt.Sprintf("%s:x:%d:%[2]d:%s:/home/%[1]s:/bin/bash", name, id, mark)
		}},
	} {
		var lines []entry
		for _, op := range missing {
			lines = append(lines, entry{op.Name, t.line(op.Name, op.UID)})
		}
		if err := u.accounts.edit(t.file, lines); err != nil {
			return results[:at[0]], err
		}
	}
	return results, failed
}

// lacks reports whether an account has to be made, and refuses one that must not be.
func (u users) lacks(op *runtimes.User, db *accountDB, made map[string]int) (bool, error) {
	if err := u.check(op); err != nil {
		return false, err
	}
	if g, ok := db.group(op.Name); ok && g.gid != op.UID {
		return false, refuse("group %s exists with gid %d, want %d", op.Name, g.gid, op.UID)
	}
	if g, ok := db.gid(op.UID); ok && g.name != op.Name {
		return false, refuse("gid %d belongs to group %s", op.UID, plain(g.name))
	}
	_, hasGroup := db.group(op.Name)
	have, hasUser := db.user(op.Name)
	if hasUser && have.uid != op.UID {
		return false, refuse("account %s exists with uid %d, want %d", op.Name, have.uid, op.UID)
	}
	if other, ok := db.uid(op.UID); ok && other.name != op.Name {
		return false, refuse("uid %d belongs to account %s", op.UID, plain(other.name))
	}
	if err := db.checkOrdinary(op.Name, op.UID); err != nil {
		return false, err
	}
	switch half := made[op.Name] == op.UID; { // recorded, possibly incomplete after a crash
	case hasUser && !half:
		// An author of the estate must not take over an existing account, which may be
		// an administrator's.
		return false, refuse("account %s exists and was not made by Berth: remove it, use another user name, or manage accounts in a "+
			"directory", op.Name)
	case hasUser && have.gid != op.UID:
		return false, refuse("account %s has primary group %d, want %d", op.Name, have.gid, op.UID)
	case hasUser && hasGroup:
		return false, nil
	case hasGroup && !half:
		return false, refuse("group %s exists without an account of that name", op.Name)
	}
	return true, nil
}

// remove ends the processes of users before and after it removes their accounts: a
// job may have left processes, and another user may get the uid next.
func (u users) remove(
	ctx context.Context, ops []*runtimes.User, db *accountDB, made map[string]int,
) (results []runtimes.Result, failed error) {
	var gone []*runtimes.User
	var at []int // the index of each in ops
	left := maps.Clone(made)
	for i, op := range ops {
		if failed = u.check(op); failed != nil {
			break
		}
		ours := left[op.Name] == op.UID
		if have, ok := db.user(op.Name); ours && ok && (have.uid != op.UID || have.gecos != mark) {
			failed = refuse("account %s is not the one that Berth made", op.Name)
			break
		}
		results = append(results, runtimes.Result{Changed: ours})
		if ours {
			gone, at = append(gone, op), append(at, i)
			delete(left, op.Name)
		}
	}
	if n, err := endProcesses(ctx, gone); err != nil {
		results, gone, failed = results[:at[n]], gone[:n], err
	}
	if len(gone) == 0 {
		return results, failed
	}
	var lines []entry
	for _, op := range gone {
		lines = append(lines, entry{name: op.Name})
	}
	for _, file := range []string{"passwd", "shadow", "gshadow", "group"} {
		if err := u.accounts.edit(file, lines); err != nil {
			return results[:at[0]], err
		}
	}
	if n, err := endProcesses(ctx, gone); err != nil {
		results, gone, failed = results[:at[n]], gone[:n], err
	}
	for i, op := range gone {
		if err := (userDirs{allow: u.allow}).takeBack(op.Name, op.UID); err != nil {
			results, gone, failed = results[:at[i]], gone[:i], err
			break
		}
	}
	for _, op := range gone {
		delete(made, op.Name)
	}
	if err := u.state.writeJSON(usersFile, made); err != nil {
		return results[:at[0]], err
	}
	return results, failed
}

// endProcesses kills the processes of users until none is left. With an error, it returns the
// index of the first user who has processes left.
func endProcesses(ctx context.Context, of []*runtimes.User) (int, error) {
	if len(of) == 0 {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	index := map[int]int{} // by uid
	for i, op := range of {
		index[op.UID] = i
	}
	for {
		left := map[int][]process{}
		found, err := scanProcesses(func(p process) bool {
			for _, uid := range p.uids() {
				if i, ok := index[uid]; ok {
					left[i] = append(left[i], p)
					return true
				}
			}
			return false
		})
		if err != nil || len(found) == 0 {
			return 0, err
		}
		first := slices.Min(slices.Collect(maps.Keys(left))) // those before it have ended
		for _, p := range found {
			if err := p.signal(unix.SIGKILL); err != nil {
				return first, &Fault{Code: runtimes.CodeIO,
					Message: fmt.Sprintf("process %d of a user whose account is to be removed: %v", p.pid, err)}
			}
		}
		select {
		case <-ctx.Done():
			return first, &Fault{Code: runtimes.CodeTimeout, Message: fmt.Sprintf(
				"%d processes of uid %d do not end, such as %d; the account stays recorded",
				len(left[first]), of[first].UID, left[first][0].pid)}
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// checkDirectory refuses an account whose name or uid a directory service has, and returns its
// index. A directory that has none of them answers in one call.
func (u users) checkDirectory(ctx context.Context, ops []*runtimes.User) (int, error) {
	keys := func(op *runtimes.User) []string { return []string{op.Name, strconv.Itoa(op.UID)} }
	var all []string
	for _, op := range ops {
		all = append(all, keys(op)...)
	}
	if found, err := u.lookUp(ctx, all...); err != nil || len(found) == 0 {
		return 0, err
	}
	for i, op := range ops {
		for _, key := range keys(op) {
			found, err := u.lookUp(ctx, key)
			if err != nil {
				return i, err
			}
			if len(found) > 0 && (found[0].name != op.Name || found[0].uid != op.UID) {
				return i, refuse("the directory service already has %s, as %s", key, plain(found[0].name))
			}
		}
	}
	return 0, nil
}

// lookUp queries directory services for names and uids.
func (u users) lookUp(ctx context.Context, keys ...string) (found []account, err error) {
	if u.getent == "" || len(keys) == 0 {
		return nil, nil
	}
	out, err := exec.CommandContext(ctx, u.getent, append([]string{"passwd"}, keys...)...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 2 {
		err = nil // it has not all of them
	}
	asked := plain(strings.Join(keys, " "))
	if err != nil {
		return nil, &Fault{Code: runtimes.CodeIO, Message: fmt.Sprintf("%s passwd %s: %v", u.getent, asked, err)}
	}
	for line := range strings.Lines(string(out)) {
		one, ok := parseAccount(strings.Split(strings.TrimSpace(line), ":"))
		if !ok {
			return nil, &Fault{Code: runtimes.CodeIO, Message: fmt.Sprintf("%s passwd %s: the output is not an account", u.getent, asked)}
		}
		found = append(found, one)
	}
	return found, nil
}

// person returns the account that a program runs as: within the profile's range and
// not an administrator.
func (u users) person(ctx context.Context, want runtimes.Person) (account, error) {
	db, err := u.accounts.read()
	if err != nil {
		return account{}, err
	}
	return u.personIn(ctx, db, want)
}

// personIn is person with the accounts of the host that were read.
func (u users) personIn(ctx context.Context, db *accountDB, want runtimes.Person) (account, error) {
	if !isAccountName(want.Name) || !u.allow.uid(want.UID) {
		return account{}, refuse("%s with uid %d is not a user that this host's profile allows", plain(want.Name), want.UID)
	}
	have, ok := db.user(want.Name)
	if !ok {
		found, err := u.lookUp(ctx, want.Name)
		if err != nil {
			return account{}, err
		}
		if ok = len(found) > 0; ok {
			have = found[0]
		}
	}
	switch {
	case !ok:
		return account{}, &Fault{Code: runtimes.CodeNotFound, Message: "no account " + want.Name + " on this host"}
	case have.name != want.Name || have.uid != want.UID:
		return account{}, refuse("account %s has uid %d, want %d", plain(have.name), have.uid, want.UID)
	case have.gid == 0:
		return account{}, refuse("account %s has the group of root", plain(have.name))
	}
	return have, db.checkOrdinary(have.name, have.gid)
}

// usersFile has the accounts that Berth made or began to make, with their uids. A whole one also has the mark.
const usersFile = "users.json"
