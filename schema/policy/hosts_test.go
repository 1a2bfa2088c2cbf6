package policy

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// matches reports whether a pattern matches a host with its port, or without one. It is
// the simple definition to test covers against.
func matches(pattern, host string) bool {
	name, port, _ := strings.Cut(pattern, ":")
	is, at, _ := strings.Cut(host, ":")
	if port != "" && port != at {
		return false
	}
	want, labels := strings.Split(name, "."), strings.Split(is, ".")
	if want[0] != "*" {
		return name == is
	}
	want = want[1:]
	if len(labels) <= len(want) {
		return false
	}
	for i := range want {
		if want[len(want)-1-i] != labels[len(labels)-1-i] {
			return false
		}
	}
	return true
}

func anyMatches(patterns []string, host string) bool {
	for _, p := range patterns {
		if matches(p, host) {
			return true
		}
	}
	return false
}

func TestHostPatterns(t *testing.T) {
	for _, tc := range []struct {
		pattern string
		in      []string
		out     []string
	}{
		{"example.org", []string{"example.org", "example.org:443"}, []string{"a.example.org", "example.org.evil", "xexample.org"}},
		{"example.org:443", []string{"example.org:443"}, []string{"example.org", "example.org:80", "example.org:4433"}},
		{"*.example.org", []string{"a.example.org", "a.b.example.org", "a.example.org:5000", "*.b.example.org", "*.example.org:1"},
			[]string{"example.org", "aexample.org", "a.example.org.evil", "*.org"}},
		{"*.example.org:5000", []string{"a.example.org:5000", "*.b.example.org:5000"},
			[]string{"a.example.org", "a.example.org:443", "*.example.org"}},
	} {
		for _, in := range tc.in {
			require.True(t, covers(tc.pattern, in), "%s covers %s", tc.pattern, in)
		}
		for _, out := range tc.out {
			require.False(t, covers(tc.pattern, out), "%s covers %s", tc.pattern, out)
		}
	}
}

// A witness is a host that a user can try, not a pattern.
func TestWitnessIsASingleHost(t *testing.T) {
	var many []string
	for c := 'a'; c <= 'z'; c++ {
		many = append(many, string(c)+".example.org")
	}
	for _, tc := range []struct {
		pattern string
		allowed []string
		witness string
	}{
		{"*.example.org", []string{"example.org"}, "a.example.org"},
		{"*.example.org", []string{"a.example.org", "*.a.example.org"}, "b.example.org"},
		{"*.example.org", many, "a1.example.org"},
		{"*.example.org", []string{"*.example.org:443"}, "a.example.org"},
		{"*.example.org:80", []string{"*.example.org:443"}, "a.example.org:80"},
		{"example.org", []string{}, "example.org"},
		{"example.org", []string{"*.org"}, ""},
		{"*.b.example.org:1", []string{"*.example.org"}, ""},
	} {
		witness, ok := outside(tc.pattern, tc.allowed)
		require.Equal(t, tc.witness, witness, "%s, allowed %v", tc.pattern, tc.allowed)
		require.Equal(t, tc.witness != "", ok)
	}
}

func TestBothHosts(t *testing.T) {
	for _, tc := range []struct{ a, b, both []string }{
		{[]string{"*.x", "y"}, []string{"a.x", "y:1"}, []string{"a.x", "y:1"}},
		{[]string{"*.x:1"}, []string{"a.x"}, []string{"a.x:1"}},
		{[]string{"a.x"}, []string{"*.x:1"}, []string{"a.x:1"}},
		{[]string{"*.x:1"}, []string{"a.x:2"}, []string{}},
		{[]string{"*.x"}, []string{"x"}, []string{}},
		{[]string{"*.x", "a.x"}, []string{"*.x"}, []string{"*.x"}},
	} {
		require.Equal(t, tc.both, bothHosts(tc.a, tc.b))
		require.Equal(t, tc.both, bothHosts(tc.b, tc.a))
	}
}

// Form of patterns (schema/cue/common.cue).
var hostForm = regexp.MustCompile(`^(\*\.)?[a-z0-9]([-.a-z0-9]{0,252}[a-z0-9])?(:[0-9]{1,5})?$`)

// A pattern is covered, or a witness outside exists and is correct by the simple
// definition. A covered pattern has no witness among hosts made for it.
func FuzzHostPatterns(f *testing.F) {
	f.Add("*.example.org", "a.example.org,*.example.org:443")
	f.Add("a.example.org:443", "*.example.org")
	f.Add("*.a.b:1", "*.b:1,*.a.b:2,b")
	f.Fuzz(func(t *testing.T, child, list string) {
		parents := strings.Split(list, ",")
		for _, p := range append(parents, child) {
			if !hostForm.MatchString(p) {
				return // not in the form of a pattern
			}
		}
		witness, ok := outside(child, parents)
		if ok {
			require.True(t, matches(child, witness))
			require.False(t, anyMatches(parents, witness))
			return
		}
		name, port, _ := strings.Cut(child, ":")
		ports := []string{":" + port}
		if port == "" {
			ports = []string{"", ":1", ":443", ":65535"}
		}
		for _, label := range []string{"a", "b", "zz", "q.r"} {
			for _, p := range ports {
				host := strings.Replace(name, "*", label, 1) + p
				require.True(t, matches(child, host))
				require.True(t, anyMatches(parents, host), "%s is in %s, and in none of %s", host, child, parents)
			}
		}
	})
}
