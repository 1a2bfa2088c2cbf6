package agent

import (
	"context"
	"errors"
	"fmt"
	"path"

	"golang.org/x/sys/unix"

	"berth/runtimes"
)

// userDirs are the directories of users, in which no other user can put or read a file. Each is
// in a directory of a unit, which only root writes to.
type userDirs struct {
	users users
	allow *allowList
	paths madePaths
}

// userDirName has the uid: a later user with the same name gets another directory.
func userDirName(name string, uid int) string { return fmt.Sprintf("%s-%d", name, uid) }

// do makes the directories of users until one fails, and returns the results of those before it.
// It reads the accounts of the host once.
func (d userDirs) do(ctx context.Context, ops []*runtimes.UserDir) (results []runtimes.Result, err error) {
	db, err := d.users.accounts.read()
	if err != nil {
		return nil, err
	}
	for _, op := range ops {
		if ctx.Err() != nil {
			return results, notStarted()
		}
		res, err := d.make(ctx, db, op)
		if err != nil {
			return results, err
		}
		results = append(results, res)
	}
	return results, nil
}

func (d userDirs) make(ctx context.Context, db *accountDB, op *runtimes.UserDir) (runtimes.Result, error) {
	var res runtimes.Result
	if !d.allow.userDirs(op.In) {
		return res, refuse("%s: no directory for users' directories by this host's profile", plain(op.In))
	}
	if made, err := d.paths.made(op.In); err != nil {
		return res, err
	} else if !made {
		return res, &Fault{Code: runtimes.CodeForeign, Message: foreignPath(op.In)}
	}
	owner, err := d.users.personIn(ctx, db, runtimes.Person{Name: op.Name, UID: op.UID})
	if err != nil {
		return res, err
	}
	p, err := open(path.Join(op.In, userDirName(op.Name, op.UID)))
	if err != nil {
		return res, err
	}
	defer p.close()
	res.Changed, err = p.makeFor(owner)
	return res, err
}

// makeFor makes a directory that only its owner can use. A directory that root has is given to
// the owner: it was made before, and the account was removed since then. Another one of the
// owner stays unchanged.
func (p place) makeFor(owner account) (changed bool, err error) {
	if err := unix.Mkdirat(p.dir, p.name, 0o700); err != nil && err != unix.EEXIST {
		return false, ioFault(p.path, err)
	}
	afterStep()
	fd, err := p.openDirectory()
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, ioFault(p.path, err)
	}
	switch int(st.Uid) {
	case owner.uid:
		return false, nil
	case 0:
	default:
		return false, refuse("%s belongs to uid %d, want %d of %s; move it away, then try again", plain(p.path), st.Uid, owner.uid,
			owner.name)
	}
	err = errors.Join(unix.Fchmod(fd, 0o700), unix.Fchown(fd, owner.uid, owner.gid), unix.Fsync(p.dir))
	return true, ioFaultOrNil(p.path, err)
}

// takeBack takes the directories of a user away from a uid that another user may get next: an
// empty one is removed, another one belongs to root from now on.
func (d userDirs) takeBack(name string, uid int) error {
	for _, p := range d.allow.profiles {
		if p.UserDirs == "" {
			continue
		}
		units, err := hostFiles{allow: d.allow}.list(&runtimes.List{Path: p.UserDirs})
		if err != nil {
			return err
		}
		for _, unit := range units.Names {
			if err := takeBackDir(path.Join(p.UserDirs, unit, userDirName(name, uid))); err != nil {
				return err
			}
		}
	}
	return nil
}

func takeBackDir(name string) error {
	p, err := open(name)
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer p.close()
	if removed, err := p.removeDir(); err != nil || removed {
		return err
	}
	fd, err := p.openDirectory()
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return ioFaultOrNil(name, errors.Join(unix.Fchown(fd, 0, 0), unix.Fchmod(fd, 0o700), unix.Fsync(p.dir)))
}

func ioFaultOrNil(name string, err error) error {
	if err == nil {
		return nil
	}
	return ioFault(name, err)
}
