package agent

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"berth/runtimes"
)

// allowList has everything that the profiles of this host allow.
type allowList struct {
	profiles []runtimes.Profile

	touch []*regexp.Regexp // paths
	look  []*regexp.Regexp // for Stat only
	hash  []*regexp.Regexp // for Stat only, with the digest
	keys  []*regexp.Regexp // paths whose Read is in the ledger
	make  []func(runtimes.Making) error
}

func newAllowList(profiles []runtimes.Profile) *allowList {
	l := &allowList{profiles: profiles}
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
		for _, pattern := range p.HashPaths {
			l.hash = append(l.hash, compilePattern(pattern))
		}
		for _, pattern := range p.SecretPaths {
			l.keys = append(l.keys, compilePattern(pattern))
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

// checkLook checks a path for Stat. hashed: the answer has the digest of a plain file.
func (l *allowList) checkLook(p string) (hashed bool, err error) {
	if err := clean(p); err != nil {
		return false, err
	}
	if matches(l.touch, p) || matches(l.hash, p) {
		return true, nil
	}
	if matches(l.look, p) {
		return false, nil
	}
	return false, refuse("%s: path not allowed for stat by this host's profile", plain(p))
}

func matches(list []*regexp.Regexp, p string) bool {
	return slices.ContainsFunc(list, func(e *regexp.Regexp) bool { return e.MatchString(p) })
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

func (l *allowList) program(name string) (runtimes.Program, bool) {
	for _, p := range l.profiles {
		if prog, ok := p.Programs[name]; ok {
			return prog, true
		}
	}
	return runtimes.Program{}, false
}

// reads reports whether a run of a program has no effect. Reads sees the arguments alone, so no file may be the input, and only
// input that the program needs for each call.
func (l *allowList) reads(op *runtimes.Run) bool {
	prog, ok := l.program(op.Program)
	return ok && prog.Reads != nil && op.StdinFile == "" && (len(op.Stdin) == 0 || prog.ReadsStdin) && prog.Reads(op.Args)
}

func (l *allowList) service(op *runtimes.Service) (runtimes.ServiceSpec, error) {
	for _, p := range l.profiles {
		make, ok := p.Services[op.Name]
		if !ok {
			continue
		}
		spec, err := make(op.Unit, op.Params)
		if err != nil {
			return spec, refuse("service %s %s: %v", plain(op.Name), plain(op.Unit), err)
		}
		return spec, nil
	}
	return runtimes.ServiceSpec{}, refuse("this host's profile has no service %s", plain(op.Name))
}

// userDirs reports whether users may have directories in one.
func (l *allowList) userDirs(in string) bool {
	return clean(in) == nil && slices.ContainsFunc(l.profiles, func(p runtimes.Profile) bool {
		return p.UserDirs != "" && path.Dir(in) == p.UserDirs
	})
}

// uid reports whether an account may have a uid.
func (l *allowList) uid(uid int) bool {
	return slices.ContainsFunc(l.profiles, func(p runtimes.Profile) bool { return p.IsUID != nil && p.IsUID(uid) })
}
