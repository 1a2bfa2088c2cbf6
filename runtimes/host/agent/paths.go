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

// allowList is the paths of all profiles.
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

// compilePattern turns a path of a profile into an anchored expression. It is
// only ever asked about clean paths, which have no "." or ".." in them.
func compilePattern(pattern string) *regexp.Regexp {
	stem, below := strings.CutSuffix(pattern, "/**")
	e := strings.ReplaceAll(regexp.QuoteMeta(stem), `\*`, `[A-Za-z0-9._-]+`)
	if below {
		e += `/.+`
	}
	return regexp.MustCompile(`\A` + e + `\z`)
}

// check refuses what is not a clean absolute path that a profile allows.
func (l *allowList) check(p string) error {
	if err := clean(p); err != nil {
		return err
	}
	if matches(l.touch, p) {
		return nil
	}
	return refuse("%s is not among the paths that this host's profile allows", plain(p))
}

// checkMake is check for what would be made, which every profile has to agree to.
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

// checkLook is check for Stat; readable says whether contents may be read too.
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
	return false, refuse("%s is not among the paths that this host's profile allows to look at", plain(p))
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
		return refuse("%s is no clean absolute path", plain(p))
	}
	for i := range len(p) {
		if p[i] < ' ' || p[i] == 0x7f {
			return refuse("%s holds a control character", plain(p))
		}
	}
	return nil
}

// place is a name in an open directory. What is done to it is done by the
// directory's descriptor: nobody can put a link in the way in between.
type place struct {
	dir  int
	name string
	path string // for messages
}

func (p place) close() { _ = unix.Close(p.dir) }

// open opens the directory of a path, refusing symbolic links on the way.
func open(p string) (place, error) {
	dir, name := path.Split(p)
	fd, err := openDir(dir)
	if err != nil {
		return place{}, err
	}
	return place{fd, name, p}, nil
}

// openDir opens a directory, no step of whose path is a symbolic link. The
// caller closes it.
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

// stepFault explains why a step of a path could not be taken.
func stepFault(at string, err error) error {
	if err == unix.ENOTDIR || err == unix.ELOOP {
		return refuse("%s is a link or no directory; links are never followed", plain(at))
	}
	return ioFault(at, err)
}

func ioFault(p string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err // the path is said already
	}
	if errors.Is(err, unix.ENOENT) {
		return &Fault{Code: CodeNotFound, Message: plain(p) + ": no such file or directory"}
	}
	return &Fault{Code: CodeIO, Message: plain(p) + ": " + err.Error()}
}

func isNotFound(err error) bool { return err != nil && faultOf(err).Code == CodeNotFound }

// openat is unix.Openat that goes on when a signal interrupts it.
func openat(dir int, name string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags, mode)
		if err != unix.EINTR {
			return fd, err
		}
	}
}
