package agent

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"berth/runtimes"
)

// mark is the comment field of accounts that Berth made. An account is removed only if
// it has the mark and is recorded with its uid.
const mark = "managed by Berth"

var accountName = regexp.MustCompile(`\A[a-z][-a-z0-9_]{0,31}\z`)

// users makes and removes accounts.
type users struct {
	state    stateDir
	accounts accountFiles
	allow    *allowList
	getent   string // program that queries directory services; empty: none
}

// do makes or removes an account. It locks the password and makes no home directory,
// which may be on shared storage.
func (u users) do(ctx context.Context, op *runtimes.User) (runtimes.Result, error) {
	var res runtimes.Result
	if !accountName.MatchString(op.Name) {
		return res, invalid("%s is not an account name", plain(op.Name))
	}
	if !u.allow.uid(op.UID) {
		return res, refuse("uid %d is outside the range of this host's profile", op.UID)
	}
	lock, err := u.state.lock(ctx, lockAccounts, false)
	if err != nil {
		return res, err
	}
	defer lock.Close()
	// The lock of useradd and similar tools, so that none of them writes meanwhile.
	shadow, err := u.accounts.lock(ctx)
	if err != nil {
		return res, err
	}
	defer shadow.Close()
	db, err := u.accounts.read()
	if err != nil {
		return res, err
	}
	made := map[string]int{}
	if _, err := u.state.readJSON(usersFile, &made); err != nil {
		return res, err
	}
	if op.Absent {
		return u.remove(ctx, op, db, made)
	}
	return u.add(ctx, op, db, made)
}

func (u users) add(ctx context.Context, op *runtimes.User, db *accountDB, made map[string]int) (runtimes.Result, error) {
	var res runtimes.Result
	if g, ok := db.group(op.Name); ok && g.gid != op.UID {
		return res, refuse("group %s exists with gid %d, want %d", op.Name, g.gid, op.UID)
	}
	if g, ok := db.gid(op.UID); ok && g.name != op.Name {
		return res, refuse("gid %d belongs to group %s", op.UID, plain(g.name))
	}
	_, hasGroup := db.group(op.Name)
	have, hasUser := db.user(op.Name)
	if hasUser && have.uid != op.UID {
		return res, refuse("account %s exists with uid %d, want %d", op.Name, have.uid, op.UID)
	}
	if other, ok := db.uid(op.UID); ok && other.name != op.Name {
		return res, refuse("uid %d belongs to account %s", op.UID, plain(other.name))
	}
	if err := db.checkOrdinary(op.Name, op.UID); err != nil {
		return res, err
	}
	switch half := made[op.Name] == op.UID; { // recorded, possibly incomplete after a crash
	case hasUser && !half:
		// An author of the estate must not take over an existing account, which may be
		// an administrator's.
		return res, refuse("account %s exists and was not made by Berth: remove it, use another user name, or manage accounts in a directory", op.Name)
	case hasUser && have.gid != op.UID:
		return res, refuse("account %s has primary group %d, want %d", op.Name, have.gid, op.UID)
	case hasUser && hasGroup:
		return res, nil
	case hasGroup && !half:
		return res, refuse("group %s exists without an account of that name", op.Name)
	}
	if err := u.checkDirectory(ctx, op); err != nil {
		return res, err
	}
	// The record first, so that an account that a crash leaves incomplete is known.
	made[op.Name] = op.UID
	if err := u.state.writeJSON(usersFile, made); err != nil {
		return res, err
	}
	id := strconv.Itoa(op.UID)
	day := strconv.FormatInt(time.Now().Unix()/86400, 10)
	res.Changed = true
	// passwd last: its line makes the account exist.
	for _, t := range []struct{ file, line string }{
		{"group", op.Name + ":x:" + id + ":"},
		{"gshadow", op.Name + ":!::"},
		{"shadow", op.Name + ":!:" + day + ":0:99999:7:::"},
		{"passwd", op.Name + ":x:" + id + ":" + id + ":" + mark + ":/home/" + op.Name + ":/bin/bash"},
	} {
		if err := u.accounts.edit(t.file, op.Name, t.line); err != nil {
			return res, err
		}
	}
	return res, nil
}

// remove ends the processes of a user before and after it removes the account: a
// job may have left processes, and another user may get the uid next.
func (u users) remove(ctx context.Context, op *runtimes.User, db *accountDB, made map[string]int) (runtimes.Result, error) {
	var res runtimes.Result
	uid, ours := made[op.Name]
	if !ours || uid != op.UID {
		return res, nil
	}
	if have, ok := db.user(op.Name); ok && (have.uid != uid || have.gecos != mark) {
		return res, refuse("account %s is not the one that Berth made", op.Name)
	}
	res.Changed = true
	if err := endProcesses(ctx, uid); err != nil {
		return res, err
	}
	for _, file := range []string{"passwd", "shadow", "gshadow", "group"} {
		if err := u.accounts.edit(file, op.Name, ""); err != nil {
			return res, err
		}
	}
	if err := endProcesses(ctx, uid); err != nil {
		return res, err
	}
	delete(made, op.Name)
	return res, u.state.writeJSON(usersFile, made)
}

// endProcesses kills every process of a uid until none is left.
func endProcesses(ctx context.Context, uid int) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		found, err := scanProcesses(func(p process) bool { return p.hasUID(uid) })
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return nil
		}
		for _, p := range found {
			if err := p.signal(unix.SIGKILL); err != nil {
				return &Fault{Code: CodeIO, Message: fmt.Sprintf("process %d of uid %d: %v", p.pid, uid, err)}
			}
		}
		select {
		case <-ctx.Done():
			return &Fault{Code: CodeTimeout, Message: fmt.Sprintf("%d processes of uid %d do not end, such as %d; the account stays recorded", len(found), uid, found[0].pid)}
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// checkDirectory refuses an account whose name or uid a directory service has.
func (u users) checkDirectory(ctx context.Context, op *runtimes.User) error {
	for _, key := range []string{op.Name, strconv.Itoa(op.UID)} {
		have, ok, err := u.lookUp(ctx, key)
		if err != nil {
			return err
		}
		if ok && (have.name != op.Name || have.uid != op.UID) {
			return refuse("the directory service already has %s, as %s", key, plain(have.name))
		}
	}
	return nil
}

// lookUp queries directory services for a name or uid.
func (u users) lookUp(ctx context.Context, key string) (account, bool, error) {
	if u.getent == "" {
		return account{}, false, nil
	}
	out, err := exec.CommandContext(ctx, u.getent, "passwd", key).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 2 {
		return account{}, false, nil // no such account
	}
	if err != nil {
		return account{}, false, &Fault{Code: CodeIO, Message: fmt.Sprintf("%s passwd %s: %v", u.getent, key, err)}
	}
	found, ok := parseAccount(strings.Split(strings.TrimSpace(string(out)), ":"))
	if !ok {
		return account{}, false, &Fault{Code: CodeIO, Message: fmt.Sprintf("%s passwd %s: the output is not an account", u.getent, key)}
	}
	return found, true, nil
}

// person returns the account that a program runs as: within the profile's range and
// not an administrator.
func (u users) person(ctx context.Context, want runtimes.Person) (account, error) {
	if !accountName.MatchString(want.Name) || !u.allow.uid(want.UID) {
		return account{}, refuse("%s with uid %d is not a user that this host's profile allows", plain(want.Name), want.UID)
	}
	db, err := u.accounts.read()
	if err != nil {
		return account{}, err
	}
	have, ok := db.user(want.Name)
	if !ok {
		if have, ok, err = u.lookUp(ctx, want.Name); err != nil {
			return account{}, err
		}
	}
	switch {
	case !ok:
		return account{}, &Fault{Code: CodeNotFound, Message: "no account " + want.Name + " on this host"}
	case have.name != want.Name || have.uid != want.UID:
		return account{}, refuse("account %s has uid %d, want %d", plain(have.name), have.uid, want.UID)
	case have.gid == 0:
		return account{}, refuse("account %s has the group of root", plain(have.name))
	}
	return have, db.checkOrdinary(have.name, have.gid)
}

// usersFile has the accounts that Berth made, with their uids.
const usersFile = "users.json"
