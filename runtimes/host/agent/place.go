package agent

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"berth/runtimes"
)

// place is a name in an open directory. Operations use the descriptor of the
// directory, so nobody can redirect them with a link.
type place struct {
	dir  int
	name string
	path string // for messages
}

func (p place) close() { _ = unix.Close(p.dir) }

// lstat returns the status of the path itself, not of the target of a link.
func (p place) lstat() (st unix.Stat_t, exists bool, err error) {
	switch err := unix.Fstatat(p.dir, p.name, &st, unix.AT_SYMLINK_NOFOLLOW); err {
	case nil:
		return st, true, nil
	case unix.ENOENT:
		return st, false, nil
	default:
		return st, false, ioFault(p.path, err)
	}
}

// room reports whether the file system of a directory, which may be mounted there, has no room, and whether it is read-only.
// One that is gone is neither.
func (p place) room() (full, readOnly bool, err error) {
	fd, err := openat(p.dir, p.name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT {
		return false, false, nil
	}
	if err != nil {
		return false, false, ioFault(p.path, err)
	}
	defer unix.Close(fd)
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return false, false, ioFault(p.path, err)
	}
	full = fs.Blocks > 0 && fs.Bavail*uint64(fs.Bsize) < lowSpace || fs.Files > 0 && fs.Ffree == 0
	return full, fs.Flags&unix.ST_RDONLY != 0, nil
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

// same reports whether the file has this content, mode and owner. A path that is not a
// plain file is an error, because it is never replaced.
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

// openPlain opens the plain file at a path for reading.
func openPlain(name string) (*os.File, error) {
	p, err := open(name)
	if err != nil {
		return nil, err
	}
	defer p.close()
	f, _, err := p.openFile()
	return f, err
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
	fd, err := p.openDirectory()
	if err != nil {
		return err
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

// removeDir removes an empty directory. It returns false if the directory is missing, or stays
// because it has content or something is mounted there.
func (p place) removeDir() (removed bool, err error) {
	switch err := unix.Unlinkat(p.dir, p.name, unix.AT_REMOVEDIR); err {
	case nil:
		afterStep()
		return true, nil
	case unix.ENOENT, unix.ENOTEMPTY, unix.EEXIST, unix.EBUSY:
		return false, nil
	default:
		return false, ioFault(p.path, err)
	}
}

// openDirectory opens the directory at a place, and refuses a link. The caller closes the
// descriptor.
func (p place) openDirectory() (int, error) {
	fd, err := openat(p.dir, p.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, stepFault(p.path, err)
	}
	return fd, nil
}

// open opens the directory of a path, refusing symbolic links on the way.
func open(p string) (place, error) {
	dir, name := path.Split(p)
	fd, err := openDir(dir)
	if err != nil {
		return place{}, err
	}
	return place{fd, name, p}, nil
}

// openDir opens a directory and refuses symbolic links in its path. The caller closes
// the descriptor.
func openDir(dir string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Open("/", flags, 0)
	if err != nil {
		return -1, ioFault("/", err)
	}
	at := ""
	for step := range strings.SplitSeq(strings.Trim(dir, "/"), "/") {
		if step == "" {
			continue
		}
		at += "/" + step
		next, err := openat(fd, step, flags, 0)
		_ = unix.Close(fd)
		if err != nil {
			return -1, stepFault(at, err)
		}
		fd = next
	}
	return fd, nil
}

// stepFault returns the error of opening a directory in a path.
func stepFault(at string, err error) error {
	if err == unix.ENOTDIR || err == unix.ELOOP {
		return refuse("%s is a link or not a directory; links are never followed", plain(at))
	}
	return ioFault(at, err)
}

func ioFault(p string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err // without its path
	}
	if errors.Is(err, unix.ENOENT) {
		return &Fault{Code: runtimes.CodeNotFound, Message: plain(p) + ": no such file or directory"}
	}
	return &Fault{Code: runtimes.CodeIO, Message: plain(p) + ": " + err.Error()}
}

func isNotFound(err error) bool { return err != nil && faultOf(err).Code == runtimes.CodeNotFound }

// openat is unix.Openat with a retry after a signal.
func openat(dir int, name string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags, mode)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

func removeFile(name string) error {
	p, err := open(name)
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.remove(false); err != nil && !isNotFound(err) {
		return err
	}
	return nil
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
