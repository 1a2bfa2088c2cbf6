package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

// user makes or removes an account. It locks the password and makes no home directory,
// which may be on shared storage.
func (a *Agent) user(ctx context.Context, op *runtimes.User) (runtimes.Result, error) {
	var res runtimes.Result
	if !accountName.MatchString(op.Name) {
		return res, invalid("%s is not an account name", plain(op.Name))
	}
	if !a.mayUID(op.UID) {
		return res, refuse("uid %d is outside the range of this host's profile", op.UID)
	}
	lock, err := a.lock(ctx, lockAccounts, false)
	if err != nil {
		return res, err
	}
	defer lock.Close()
	// The lock of useradd and similar tools, so that none of them writes meanwhile.
	shadow, err := lockAccountFiles(ctx, a.etc)
	if err != nil {
		return res, err
	}
	defer shadow.Close()
	db, err := a.accounts()
	if err != nil {
		return res, err
	}
	made, err := a.readMade()
	if err != nil {
		return res, err
	}
	if op.Absent {
		return a.removeUser(ctx, op, db, made)
	}
	return a.addUser(ctx, op, db, made)
}

func (a *Agent) mayUID(uid int) bool {
	for _, p := range a.profiles {
		if p.MinUID > 0 && uid >= p.MinUID && uid <= p.MaxUID {
			return true
		}
	}
	return false
}

func (a *Agent) addUser(ctx context.Context, op *runtimes.User, db *accountDB, made map[string]int) (runtimes.Result, error) {
	var res runtimes.Result
	if g, ok := db.group(op.Name); ok && g.gid != op.UID {
		return res, refuse("group %s exists with gid %d, want %d", op.Name, g.gid, op.UID)
	}
	if g, ok := db.gid(op.UID); ok && g.name != op.Name {
		return res, refuse("gid %d belongs to group %s", op.UID, plain(g.name))
	}
	_, hasGroup := db.group(op.Name)
	u, hasUser := db.user(op.Name)
	if hasUser && u.uid != op.UID {
		return res, refuse("account %s exists with uid %d, want %d", op.Name, u.uid, op.UID)
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
	case hasUser && u.gid != op.UID:
		return res, refuse("account %s has primary group %d, want %d", op.Name, u.gid, op.UID)
	case hasUser && hasGroup:
		return res, nil
	case hasGroup && !half:
		return res, refuse("group %s exists without an account of that name", op.Name)
	}
	if err := a.checkDirectory(ctx, op); err != nil {
		return res, err
	}
	// The record first, so that an account that a crash leaves incomplete is known.
	made[op.Name] = op.UID
	if err := a.writeMade(made); err != nil {
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
		if err := a.editTable(t.file, op.Name, t.line); err != nil {
			return res, err
		}
	}
	return res, nil
}

// removeUser ends the processes of a user before and after it removes the account: a
// job may have left processes, and another user may get the uid next.
func (a *Agent) removeUser(ctx context.Context, op *runtimes.User, db *accountDB, made map[string]int) (runtimes.Result, error) {
	var res runtimes.Result
	uid, ours := made[op.Name]
	if !ours || uid != op.UID {
		return res, nil
	}
	if u, ok := db.user(op.Name); ok && (u.uid != uid || u.gecos != mark) {
		return res, refuse("account %s is not the one that Berth made", op.Name)
	}
	res.Changed = true
	if err := endProcesses(ctx, uid); err != nil {
		return res, err
	}
	for _, file := range []string{"passwd", "shadow", "gshadow", "group"} {
		if err := a.editTable(file, op.Name, ""); err != nil {
			return res, err
		}
	}
	if err := endProcesses(ctx, uid); err != nil {
		return res, err
	}
	delete(made, op.Name)
	return res, a.writeMade(made)
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
func (a *Agent) checkDirectory(ctx context.Context, op *runtimes.User) error {
	for _, key := range []string{op.Name, strconv.Itoa(op.UID)} {
		u, ok, err := a.lookUp(ctx, key)
		if err != nil {
			return err
		}
		if ok && (u.name != op.Name || u.uid != op.UID) {
			return refuse("the directory service already has %s, as %s", key, plain(u.name))
		}
	}
	return nil
}

// lookUp queries directory services for a name or uid.
func (a *Agent) lookUp(ctx context.Context, key string) (account, bool, error) {
	if a.getent == "" {
		return account{}, false, nil
	}
	out, err := exec.CommandContext(ctx, a.getent, "passwd", key).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 2 {
		return account{}, false, nil // no such account
	}
	if err != nil {
		return account{}, false, &Fault{Code: CodeIO, Message: fmt.Sprintf("%s passwd %s: %v", a.getent, key, err)}
	}
	u, ok := parseAccount(strings.Split(strings.TrimSpace(string(out)), ":"))
	if !ok {
		return account{}, false, &Fault{Code: CodeIO, Message: fmt.Sprintf("%s passwd %s: the output is not an account", a.getent, key)}
	}
	return u, true, nil
}

// person returns the account that a program runs as: within the profile's range and
// not an administrator.
func (a *Agent) person(ctx context.Context, want runtimes.Person) (account, error) {
	if !accountName.MatchString(want.Name) || !a.mayUID(want.UID) {
		return account{}, refuse("%s with uid %d is not a user that this host's profile allows", plain(want.Name), want.UID)
	}
	db, err := a.accounts()
	if err != nil {
		return account{}, err
	}
	u, ok := db.user(want.Name)
	if !ok {
		if u, ok, err = a.lookUp(ctx, want.Name); err != nil {
			return account{}, err
		}
	}
	switch {
	case !ok:
		return account{}, &Fault{Code: CodeNotFound, Message: "no account " + want.Name + " on this host"}
	case u.name != want.Name || u.uid != want.UID:
		return account{}, refuse("account %s has uid %d, want %d", plain(u.name), u.uid, want.UID)
	case u.gid == 0:
		return account{}, refuse("account %s has the group of root", plain(u.name))
	}
	return u, db.checkOrdinary(u.name, u.gid)
}

// editTable replaces the line of name in a table, or removes it if line is empty. It
// keeps mode and owner, and does not make a missing table.
func (a *Agent) editTable(file, name, line string) error {
	p, err := open(filepath.Join(a.etc, file))
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.sweep(); err != nil {
		return err
	}
	f, st, err := p.openFile()
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	var old, new bytes.Buffer
	if _, err := old.ReadFrom(f); err != nil {
		return ioFault(p.path, err)
	}
	for l := range bytes.Lines(old.Bytes()) {
		if !bytes.HasPrefix(l, []byte(name+":")) {
			new.Write(l)
			if l[len(l)-1] != '\n' {
				new.WriteByte('\n')
			}
		}
	}
	if line != "" {
		new.WriteString(line + "\n")
	}
	if bytes.Equal(old.Bytes(), new.Bytes()) {
		return nil
	}
	return p.replace(new.Bytes(), st.Mode&0o777, int(st.Uid), int(st.Gid))
}

const usersFile = "users.json"

// readMade reads the accounts that Berth made, with their uids.
func (a *Agent) readMade() (map[string]int, error) {
	name := filepath.Join(a.state, usersFile)
	made := map[string]int{}
	b, err := os.ReadFile(name)
	if os.IsNotExist(err) {
		return made, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &made)
	}
	if err != nil {
		return nil, ioFault(name, err)
	}
	return made, nil
}

func (a *Agent) writeMade(made map[string]int) error {
	b, err := json.MarshalIndent(made, "", "  ")
	if err != nil {
		return ioFault(usersFile, err)
	}
	return a.writeState(usersFile, string(b)+"\n")
}

// lockAccountFiles takes the lock of the shadow suite (lckpwdf(3)).
func lockAccountFiles(ctx context.Context, etc string) (*os.File, error) {
	name := filepath.Join(etc, ".pwd.lock")
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, ioFault(name, err)
	}
	return waitLock(ctx, f, 0, false, "the account files are locked")
}
