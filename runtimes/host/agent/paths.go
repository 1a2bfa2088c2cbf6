package agent

import (
	"errors"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"berth/runtimes"
)

// allowList has the path patterns of all profiles.
type allowList struct {
	touch []*regexp.Regexp
	look  []*regexp.Regexp // for Stat only
	make  []func(runtimes.Making) error
}

func newAllowList(profiles []runtimes.Profile) *allowList {
	l := &allowList{}
	for _, p := range profiles {
		for _, pattern := range p.Paths {
			l.touch = append(l.touch, compilePattern(pattern))
		}
		if p.CheckMake != nil {
			l.make = append(l.make, p.CheckMake)
		}
		for _, pattern := range p.StatPaths {
			l.look = append(l.look, compilePattern(pattern))
		}
	}
	return l
}

// compilePattern turns a path of a profile into an anchored expression for clean
// paths, which have no "." or ".." in them.
func compilePattern(pattern string) *regexp.Regexp {
	stem, below := strings.CutSuffix(pattern, "/**")
	e := strings.ReplaceAll(regexp.QuoteMeta(stem), `\*`, `[A-Za-z0-9._-]+`)
	if below {
		e += `/.+`
	}
	return regexp.MustCompile(`\A` + e + `\z`)
}

// check refuses a path that is not clean and absolute, or that no profile allows.
func (l *allowList) check(p string) error {
	if err := clean(p); err != nil {
		return err
	}
	if matches(l.touch, p) {
		return nil
	}
	return refuse("%s: path not allowed by this host's profile", plain(p))
}

// checkMake checks the path and asks CheckMake of every profile.
func (l *allowList) checkMake(m runtimes.Making) error {
	if err := l.check(m.Path); err != nil {
		return err
	}
	for _, agrees := range l.make {
		if err := agrees(m); err != nil {
			return refuse("%s: %v", plain(m.Path), err)
		}
	}
	return nil
}

// checkLook checks a path for Stat. readable: its content may be read too.
func (l *allowList) checkLook(p string) (readable bool, err error) {
	if err := clean(p); err != nil {
		return false, err
	}
	if matches(l.touch, p) {
		return true, nil
	}
	if matches(l.look, p) {
		return false, nil
	}
	return false, refuse("%s: path not allowed for stat by this host's profile", plain(p))
}

func matches(list []*regexp.Regexp, p string) bool {
	for _, e := range list {
		if e.MatchString(p) {
			return true
		}
	}
	return false
}

func clean(p string) error {
	if !path.IsAbs(p) || path.Clean(p) != p || p == "/" || len(p) > 1024 {
		return refuse("%s is not a clean absolute path", plain(p))
	}
	for i := range len(p) {
		if p[i] < ' ' || p[i] == 0x7f {
			return refuse("%s contains a control character", plain(p))
		}
	}
	return nil
}

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
		return &Fault{Code: CodeNotFound, Message: plain(p) + ": no such file or directory"}
	}
	return &Fault{Code: CodeIO, Message: plain(p) + ": " + err.Error()}
}

func isNotFound(err error) bool { return err != nil && faultOf(err).Code == CodeNotFound }

// openat is unix.Openat with a retry after a signal.
func openat(dir int, name string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags, mode)
		if err != unix.EINTR {
			return fd, err
		}
	}
}
