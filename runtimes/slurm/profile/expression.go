package profile

import (
	"regexp"
	"sync"
)

// expression is a regular expression that is compiled at its first use. The helper starts for each
// session, and a session uses few expressions: compiling all took nine tenths of a start.
type expression struct {
	compiled func() *regexp.Regexp
}

// compile returns the expression of a pattern. The first use of an invalid one panics.
func compile(pattern string) *expression {
	return &expression{sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })}
}

// MatchString works as that of regexp.Regexp, and so do the other methods.
func (e *expression) MatchString(s string) bool { return e.compiled().MatchString(s) }

// FindStringSubmatch returns the match and its groups.
func (e *expression) FindStringSubmatch(s string) []string {
	return e.compiled().FindStringSubmatch(s)
}

// String returns the pattern.
func (e *expression) String() string { return e.compiled().String() }

// SubexpIndex returns the index of a named group.
func (e *expression) SubexpIndex(name string) int { return e.compiled().SubexpIndex(name) }
