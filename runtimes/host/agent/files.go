package agent

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"berth/runtimes"
)

const (
	maxHashed = 1 << 20 // bytes of a file that Stat hashes
	maxNames  = 10000   // names of a directory that List returns
)

// owner returns the ids of a user and group. Empty names mean the agent's own.
func (a *Agent) owner(user, group string) (uid, gid int, err error) {
	uid, gid = os.Geteuid(), os.Getegid() // root, in berth-host
	if user == "" && group == "" {
		return uid, gid, nil
	}
	db, err := a.accounts()
	if err != nil {
		return 0, 0, err
	}
	if user != "" {
		u, ok := db.user(user)
		if !ok {
			return 0, 0, &Fault{Code: CodeNotFound, Message: "no account " + plain(user) + " on this host"}
		}
		uid, gid = u.uid, u.gid
	}
	if group != "" {
		g, ok := db.group(group)
		if !ok {
			return 0, 0, &Fault{Code: CodeNotFound, Message: "no group " + plain(group) + " on this host"}
		}
		gid = g.gid
	}
	return uid, gid, nil
}

func fileMode(mode, allowed uint32) error {
	if mode == 0 || mode&^allowed != 0 {
		return invalid("mode %04o is not allowed", mode)
	}
	return nil
}

func (a *Agent) write(op *runtimes.WriteFile) (runtimes.Result, error) {
	var res runtimes.Result
	if err := a.allow.checkMake(runtimes.Making{Kind: "file", Path: op.Path, Data: op.Data, Mode: op.Mode, Owner: op.Owner, Group: op.Group}); err != nil {
		return res, err
	}
	if err := fileMode(op.Mode, 0o666); err != nil { // no written file is executable
		return res, err
	}
	uid, gid, err := a.owner(op.Owner, op.Group)
	if err != nil {
		return res, err
	}
	p, err := open(op.Path)
	if err != nil {
		return res, err
	}
	defer p.close()
	same, err := p.same(op.Data, op.Mode, uid, gid)
	if err != nil || same {
		return res, err
	}
	res.Changed = true
	return res, p.replace(op.Data, op.Mode, uid, gid)
}

// same reports whether the file has this content, mode and owner. It is an error if
// the path is not a plain file, as it is not replaced then.
func (p place) same(data []byte, mode uint32, uid, gid int) (bool, error) {
	f, st, err := p.openFile()
	if isNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	if st.Mode&0o7777 != mode || int(st.Uid) != uid || int(st.Gid) != gid || st.Size != int64(len(data)) || st.Nlink != 1 {
		return false, nil
	}
	have, err := io.ReadAll(io.LimitReader(f, int64(len(data))+1))
	if err != nil {
		return false, ioFault(p.path, err)
	}
	return bytes.Equal(have, data), nil
}

// openFile opens a plain file for reading. A link, pipe or device is an error.
func (p place) openFile() (*os.File, *unix.Stat_t, error) {
	fd, err := openat(p.dir, p.name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == unix.ELOOP {
		return nil, nil, refuse("%s is a link; links are never followed", plain(p.path))
	}
	if err != nil {
		return nil, nil, ioFault(p.path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return nil, nil, ioFault(p.path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		_ = unix.Close(fd)
		return nil, nil, refuse("%s is not a plain file", plain(p.path))
	}
	return os.NewFile(uintptr(fd), p.path), &st, nil
}

// replace writes a new file atomically and syncs it. It never writes to an existing
// file or changes its owner, as that could be a hard link.
func (p place) replace(data []byte, mode uint32, uid, gid int) error {
	tmp, err := p.temporary(data, mode, uid, gid)
	if err != nil {
		return err
	}
	if err := unix.Renameat(p.dir, tmp, p.dir, p.name); err != nil {
		_ = unix.Unlinkat(p.dir, tmp, 0)
		return ioFault(p.path, err)
	}
	afterStep()
	return p.sync()
}

// afterStep is called after each change of a file. Tests end the process there.
var afterStep = func() {}

// temporary writes and syncs a file in the same directory and returns its name.
func (p place) temporary(data []byte, mode uint32, uid, gid int) (string, error) {
	tmp := temporaryName(p.name)
	fd, err := openat(p.dir, tmp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return "", ioFault(p.path, err)
	}
	f := os.NewFile(uintptr(fd), tmp)
	_, err = f.Write(data)
	if err == nil && (uid != os.Geteuid() || gid != os.Getegid()) {
		err = f.Chown(uid, gid)
	}
	if err == nil {
		err = f.Chmod(fs.FileMode(mode))
	}
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		_ = unix.Unlinkat(p.dir, tmp, 0)
		return "", ioFault(p.path, err)
	}
	afterStep()
	return tmp, nil
}

// temporaryName returns a unique name for a file that is renamed to name.
func temporaryName(name string) string {
	if len(name) > 200 {
		name = name[:200]
	}
	return "." + name + "." + rand.Text()[:10] + temporarySuffix
}

const temporarySuffix = ".berth"

func isTemporary(name string) bool {
	return strings.HasPrefix(name, ".") && strings.HasSuffix(name, temporarySuffix)
}

func (p place) sync() error {
	if err := unix.Fsync(p.dir); err != nil {
		return ioFault(path.Dir(p.path), err)
	}
	return nil
}

func (a *Agent) read(op *runtimes.ReadFile) (runtimes.Result, error) {
	var res runtimes.Result
	if err := a.allow.check(op.Path); err != nil {
		return res, err
	}
	most := op.Max
	if most == 0 {
		most = 1 << 20
	}
	if most < 0 || most > maxOutput {
		return res, invalid("max is 1 to %d bytes", maxOutput)
	}
	p, err := open(op.Path)
	if isNotFound(err) {
		return runtimes.Result{Missing: true}, nil
	}
	if err != nil {
		return res, err
	}
	defer p.close()
	f, _, err := p.openFile()
	if isNotFound(err) {
		return runtimes.Result{Missing: true}, nil
	}
	if err != nil {
		return res, err
	}
	defer f.Close()
	if res.Data, err = io.ReadAll(io.LimitReader(f, int64(most))); err != nil {
		return res, ioFault(op.Path, err)
	}
	return res, nil
}

func (a *Agent) remove(op *runtimes.Remove) (runtimes.Result, error) {
	var res runtimes.Result
	if err := a.allow.check(op.Path); err != nil {
		return res, err
	}
	p, err := open(op.Path)
	if isNotFound(err) {
		return res, nil
	}
	if err != nil {
		return res, err
	}
	defer p.close()
	if op.IfEmpty {
		return a.removeEmpty(p)
	}
	err = p.remove(op.Tree)
	if err != nil && !isNotFound(err) {
		return res, err
	}
	res.Changed = err == nil
	if err := p.sweep(); err != nil {
		return res, err
	}
	if !res.Changed {
		return res, nil
	}
	return res, p.sync()
}

// removeEmpty removes a directory that Berth made, if it is empty.
func (a *Agent) removeEmpty(p place) (runtimes.Result, error) {
	var res runtimes.Result
	if made, err := a.made(p.path); err != nil || !made {
		return res, err
	}
	switch err := unix.Unlinkat(p.dir, p.name, unix.AT_REMOVEDIR); err {
	case nil:
		afterStep()
		res.Changed = true
		return res, p.sync()
	case unix.ENOENT, unix.ENOTEMPTY, unix.EEXIST:
		return res, nil
	default:
		return res, ioFault(p.path, err)
	}
}

// sweep removes temporary files that a crash left.
func (p place) sweep() error {
	fd, err := openat(p.dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ioFault(path.Dir(p.path), err)
	}
	d := os.NewFile(uintptr(fd), path.Dir(p.path))
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return ioFault(d.Name(), err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, "."+p.name+".") && isTemporary(name) {
			if err := unix.Unlinkat(p.dir, name, 0); err != nil && err != unix.ENOENT {
				return ioFault(path.Join(d.Name(), name), err)
			}
		}
	}
	return nil
}

// remove removes a file, a link (not its target), or with tree a directory.
func (p place) remove(tree bool) error {
	err := unix.Unlinkat(p.dir, p.name, 0)
	if err == nil {
		afterStep()
		return nil
	}
	if err != unix.EISDIR {
		return ioFault(p.path, err)
	}
	if !tree {
		return refuse("%s is a directory and needs tree to be removed", plain(p.path))
	}
	fd, err := openat(p.dir, p.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return stepFault(p.path, err)
	}
	d := os.NewFile(uintptr(fd), p.path)
	defer d.Close()
	for {
		names, err := d.Readdirnames(256)
		for _, name := range names {
			child := place{fd, name, p.path + "/" + name}
			if err := child.remove(true); err != nil && !isNotFound(err) {
				return err
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return ioFault(p.path, err)
		}
		// The removals shift the names that follow, so read from the start.
		if _, err := d.Seek(0, io.SeekStart); err != nil {
			return ioFault(p.path, err)
		}
	}
	if err := unix.Unlinkat(p.dir, p.name, unix.AT_REMOVEDIR); err != nil {
		return ioFault(p.path, err)
	}
	afterStep()
	return nil
}

func (a *Agent) makeDir(op *runtimes.MakeDir) (runtimes.Result, error) {
	if err := a.allow.checkMake(runtimes.Making{Kind: "dir", Path: op.Path, Mode: op.Mode, Owner: op.Owner, Group: op.Group}); err != nil {
		return runtimes.Result{}, err
	}
	return a.directory(op)
}

// directory makes a directory, or corrects mode and owner of one that Berth made. The
// caller has checked the path.
func (a *Agent) directory(op *runtimes.MakeDir) (runtimes.Result, error) {
	var res runtimes.Result
	if err := fileMode(op.Mode, 0o1777); err != nil {
		return res, err
	}
	uid, gid, err := a.owner(op.Owner, op.Group)
	if err != nil {
		return res, err
	}
	p, err := open(op.Path)
	if err != nil {
		return res, err
	}
	defer p.close()
	made := true
	switch err := unix.Mkdirat(p.dir, p.name, 0o700); err {
	case nil:
		afterStep()
		res.Changed = true
	case unix.EEXIST:
		if made, err = a.made(op.Path); err != nil {
			return res, err
		}
	default:
		return res, ioFault(p.path, err)
	}
	fd, err := openat(p.dir, p.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return res, stepFault(p.path, err)
	}
	defer unix.Close(fd)
	if !made {
		return res, nil // not changed
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return res, ioFault(p.path, err)
	}
	if int(st.Uid) != uid || int(st.Gid) != gid {
		if err := unix.Fchown(fd, uid, gid); err != nil {
			return res, ioFault(p.path, err)
		}
		res.Changed = true
	}
	if st.Mode&0o7777 != op.Mode {
		if err := unix.Fchmod(fd, op.Mode); err != nil {
			return res, ioFault(p.path, err)
		}
		res.Changed = true
	}
	if !res.Changed {
		return res, nil
	}
	if err := unix.Fsync(fd); err != nil {
		return res, ioFault(p.path, err)
	}
	return res, p.sync()
}

func (a *Agent) makeLink(op *runtimes.MakeLink) (runtimes.Result, error) {
	if err := a.allow.checkMake(runtimes.Making{Kind: "link", Path: op.Path}); err != nil {
		return runtimes.Result{}, err
	}
	to := op.Target
	if !path.IsAbs(to) {
		to = path.Join(path.Dir(op.Path), to)
	}
	if err := a.allow.check(to); err != nil {
		return runtimes.Result{}, err
	}
	return link(op)
}

func link(op *runtimes.MakeLink) (runtimes.Result, error) {
	var res runtimes.Result
	p, err := open(op.Path)
	if err != nil {
		return res, err
	}
	defer p.close()
	st, there, err := p.lstat()
	switch {
	case err != nil:
		return res, err
	case there && st.Mode&unix.S_IFMT != unix.S_IFLNK:
		return res, refuse("%s exists and is not a link", plain(p.path))
	case there:
		have := make([]byte, 1024)
		n, err := unix.Readlinkat(p.dir, p.name, have)
		if err == nil && string(have[:n]) == op.Target {
			return res, nil
		}
	}
	tmp := temporaryName(p.name)
	if err := unix.Symlinkat(op.Target, p.dir, tmp); err != nil {
		return res, ioFault(p.path, err)
	}
	afterStep()
	if err := unix.Renameat(p.dir, tmp, p.dir, p.name); err != nil {
		_ = unix.Unlinkat(p.dir, tmp, 0)
		return res, ioFault(p.path, err)
	}
	afterStep()
	res.Changed = true
	return res, p.sync()
}

func (a *Agent) stat(op *runtimes.Stat) (runtimes.Result, error) {
	var res runtimes.Result
	rec, err := a.readPaths()
	if err != nil {
		return res, err
	}
	for _, name := range op.Paths {
		st, err := a.statOne(rec, name)
		if err != nil {
			return res, err
		}
		res.Stats = append(res.Stats, st)
	}
	return res, nil
}

func (a *Agent) statOne(rec pathRecord, name string) (runtimes.FileStat, error) {
	out := runtimes.FileStat{Path: name}
	readable, err := a.allow.checkLook(name)
	if err != nil {
		return out, err
	}
	p, err := open(name)
	if isNotFound(err) {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	defer p.close()
	st, there, err := p.lstat()
	if err != nil || !there {
		return out, err
	}
	out.Exists, out.Type, out.Mode, out.Size = true, typeOf(st.Mode), st.Mode&0o7777, st.Size
	out.Made = rec.has(name)
	if out.Type != "file" || out.Size > maxHashed || !readable {
		return out, nil
	}
	f, _, err := p.openFile()
	if isNotFound(err) {
		return runtimes.FileStat{Path: name}, nil
	}
	if err != nil {
		return out, err
	}
	defer f.Close()
	h := sha256.New()
	if out.Size, err = io.Copy(h, io.LimitReader(f, maxHashed)); err != nil {
		return out, ioFault(name, err)
	}
	out.SHA256 = hex.EncodeToString(h.Sum(nil))
	return out, nil
}

func typeOf(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return "file"
	case unix.S_IFDIR:
		return "dir"
	case unix.S_IFLNK:
		return "link"
	case unix.S_IFCHR:
		return "char"
	case unix.S_IFBLK:
		return "block"
	}
	return "other"
}

func (a *Agent) list(op *runtimes.List) (runtimes.Result, error) {
	var res runtimes.Result
	if err := a.allow.check(op.Path); err != nil {
		return res, err
	}
	fd, err := openDir(op.Path)
	if isNotFound(err) {
		return res, nil
	}
	if err != nil {
		return res, err
	}
	d := os.NewFile(uintptr(fd), op.Path)
	defer d.Close()
	names, err := d.Readdirnames(maxNames + 1)
	if err != nil && err != io.EOF {
		return res, ioFault(op.Path, err)
	}
	if len(names) > maxNames {
		return res, refuse("%s has more than %d names", plain(op.Path), maxNames)
	}
	// Names that are not UTF-8, and temporary files, are left out.
	names = slices.DeleteFunc(names, func(n string) bool {
		return strings.ToValidUTF8(n, "") != n || isTemporary(n)
	})
	slices.Sort(names)
	res.Names = names
	return res, nil
}

func (a *Agent) makeSecret(op *runtimes.MakeSecret) (runtimes.Result, error) {
	var res runtimes.Result
	if err := a.allow.checkMake(runtimes.Making{Kind: "secret", Path: op.Path, Mode: op.Mode, Owner: op.Owner, Group: op.Group}); err != nil {
		return res, err
	}
	if err := fileMode(op.Mode, 0o660); err != nil {
		return res, err
	}
	if op.Bytes < 16 || op.Bytes > 4096 {
		return res, invalid("a secret has 16 to 4096 bytes")
	}
	uid, gid, err := a.owner(op.Owner, op.Group)
	if err != nil {
		return res, err
	}
	p, err := open(op.Path)
	if err != nil {
		return res, err
	}
	defer p.close()
	if st, there, err := p.lstat(); err != nil {
		return res, err
	} else if there && st.Mode&unix.S_IFMT != unix.S_IFREG {
		return res, refuse("%s exists and is not a plain file", plain(p.path))
	} else if there {
		return res, nil
	}
	secret := make([]byte, op.Bytes)
	_, _ = rand.Read(secret) // never fails
	if op.Hex {
		secret = hex.AppendEncode(nil, secret)
	}
	tmp, err := p.temporary(secret, op.Mode, uid, gid)
	if err != nil {
		return res, err
	}
	// A hard link, unlike a rename, never replaces a file that appeared meanwhile.
	err = unix.Linkat(p.dir, tmp, p.dir, p.name, 0)
	afterStep()
	_ = unix.Unlinkat(p.dir, tmp, 0)
	switch {
	case err == unix.EEXIST:
		return res, nil
	case err != nil:
		return res, ioFault(p.path, err)
	}
	res.Changed = true
	return res, p.sync()
}
