package profile

import (
	"regexp"
	"sync"
)

// expression is a regular expression that is compiled when it is asked first. The helper starts
// for each session, and a session asks few of them: to compile all took nine tenths of a start.
type expression struct {
	compiled func() *regexp.Regexp
}

// compile returns the expression of a pattern, which panics when it is asked if it is invalid.
func compile(pattern string) *expression {
	return &expression{sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })}
}

// MatchString is that of regexp.Regexp, as the other methods are.
func (e *expression) MatchString(s string) bool { return e.compiled().MatchString(s) }

// FindStringSubmatch returns the match and its groups.
func (e *expression) FindStringSubmatch(s string) []string {
	return e.compiled().FindStringSubmatch(s)
}

// String returns the pattern.
func (e *expression) String() string { return e.compiled().String() }

// SubexpIndex returns the index of a named group.
func (e *expression) SubexpIndex(name string) int { return e.compiled().SubexpIndex(name) }
