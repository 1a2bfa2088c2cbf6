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

// mark is the comment of accounts made here. An account is removed only if it
// carries the mark and the record of what was made names it with its uid.
const mark = "managed by Berth"

var accountName = regexp.MustCompile(`\A[a-z][-a-z0-9_]{0,31}\z`)

// user makes or removes an account. Passwords are locked; no home directory is
// made, as it may be on storage that is not this host's.
func (a *Agent) user(ctx context.Context, op *runtimes.User) (runtimes.Result, error) {
	var res runtimes.Result
	if !accountName.MatchString(op.Name) {
		return res, invalid("%s is no name of an account", plain(op.Name))
	}
	if !a.mayUID(op.UID) {
		return res, refuse("uid %d is outside what this host's profile allows", op.UID)
	}
	lock, err := a.lock(ctx, lockAccounts, false)
	if err != nil {
		return res, err
	}
	defer lock.Close()
	// The lock that useradd and its like take, so that none writes in between.
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
		return res, refuse("the group %s is there with gid %d, not %d", op.Name, g.gid, op.UID)
	}
	if g, ok := db.gid(op.UID); ok && g.name != op.Name {
		return res, refuse("gid %d is there as group %s", op.UID, plain(g.name))
	}
	_, hasGroup := db.group(op.Name)
	u, hasUser := db.user(op.Name)
	if hasUser && u.uid != op.UID {
		return res, refuse("the account %s is there with uid %d, not %d", op.Name, u.uid, op.UID)
	}
	if other, ok := db.uid(op.UID); ok && other.name != op.Name {
		return res, refuse("uid %d is there as account %s", op.UID, plain(other.name))
	}
	if err := db.ordinary(op.Name, op.UID); err != nil {
		return res, err
	}
	switch half := made[op.Name] == op.UID; { // made here, up to a crash
	case hasUser && !half:
		// Somebody's account, perhaps an administrator's: whoever may name a
		// person would be handed it.
		return res, refuse("the account %s is there and was not made by Berth: remove it, give the person another name, or let a directory keep the accounts", op.Name)
	case hasUser && u.gid != op.UID:
		return res, refuse("the account %s has the primary group %d, not %d", op.Name, u.gid, op.UID)
	case hasUser && hasGroup:
		return res, nil
	case hasGroup && !half:
		return res, refuse("the group %s is there without an account of its name", op.Name)
	}
	if err := a.foreign(ctx, op); err != nil {
		return res, err
	}
	// The record first: an account that a crash leaves half made is ours.
	made[op.Name] = op.UID
	if err := a.writeMade(made); err != nil {
		return res, err
	}
	id := strconv.Itoa(op.UID)
	day := strconv.FormatInt(time.Now().Unix()/86400, 10)
	res.Changed = true
	// passwd last: with it the account is there.
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

// removeUser ends what the person still runs before the account goes, and
// looks again after: a job may have left processes behind that no scheduler
// knows of, and the uid may be somebody else's next.
func (a *Agent) removeUser(ctx context.Context, op *runtimes.User, db *accountDB, made map[string]int) (runtimes.Result, error) {
	var res runtimes.Result
	uid, ours := made[op.Name]
	if !ours || uid != op.UID {
		return res, nil
	}
	if u, ok := db.user(op.Name); ok && (u.uid != uid || u.gecos != mark) {
		return res, refuse("the account %s is not the one that was made here", op.Name)
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
		found, err := processesOf(uid)
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
			return &Fault{Code: CodeTimeout, Message: fmt.Sprintf("%d processes of uid %d do not end, such as %d; the account stays on record", len(found), uid, found[0].pid)}
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// foreign refuses an account whose name or uid a directory service has already.
func (a *Agent) foreign(ctx context.Context, op *runtimes.User) error {
	for _, key := range []string{op.Name, strconv.Itoa(op.UID)} {
		u, ok, err := a.lookUp(ctx, key)
		if err != nil {
			return err
		}
		if ok && (u.name != op.Name || u.uid != op.UID) {
			return refuse("a directory of accounts has %s already, as %s", key, plain(u.name))
		}
	}
	return nil
}

// lookUp asks directory services, where there are any, for a name or a uid.
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
		return account{}, false, &Fault{Code: CodeIO, Message: fmt.Sprintf("%s passwd %s: what it printed is no account", a.getent, key)}
	}
	return u, true, nil
}

// person finds the account a program is to run as: within the profile's bounds,
// and no administrator's.
func (a *Agent) person(ctx context.Context, want runtimes.Person) (account, error) {
	if !accountName.MatchString(want.Name) || !a.mayUID(want.UID) {
		return account{}, refuse("%s with uid %d is no person this host's profile allows", plain(want.Name), want.UID)
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
		return account{}, refuse("the account %s has uid %d, not %d", plain(u.name), u.uid, want.UID)
	case u.gid == 0:
		return account{}, refuse("the account %s has root's group", plain(u.name))
	}
	return u, db.ordinary(u.name, u.gid)
}

// editTable replaces the line of name in a table, or removes it if line is
// empty. Mode and owner of the file stay; a table that is not there is not made.
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

// readMade reads which accounts were made here, with their uids.
func (a *Agent) readMade() (map[string]int, error) {
	name := filepath.Join(a.state, "users.json")
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
	p, err := open(filepath.Join(a.state, "users.json"))
	if err != nil {
		return err
	}
	defer p.close()
	b, err := json.MarshalIndent(made, "", "  ")
	if err != nil {
		return ioFault(p.path, err)
	}
	return p.replace(append(b, '\n'), 0o600, os.Geteuid(), os.Getegid())
}

// lockAccountFiles takes the lock of the shadow suite (lckpwdf(3)).
func lockAccountFiles(ctx context.Context, etc string) (*os.File, error) {
	name := filepath.Join(etc, ".pwd.lock")
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, ioFault(name, err)
	}
	for {
		err := tryLock(f, 0, false)
		if err == nil {
			return f, nil
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, &Fault{Code: CodeTimeout, Message: "the account files stayed locked: " + err.Error()}
		case <-time.After(10 * time.Millisecond):
		}
	}
}
