package policy

import (
	"slices"
	"strconv"
	"strings"
)

// A host pattern is host or *.suffix, with or without a port. host matches itself
// only; *.suffix matches every host below suffix, not suffix itself. With a port the
// pattern matches that port only, without one every port.

func splitPort(pattern string) (host, port string) {
	host, port, _ = strings.Cut(pattern, ":")
	return host, port
}

// covers reports whether pattern matches everything that other matches. A single
// host is a pattern, too. If several patterns together cover a pattern, one of them
// covers it alone, because there are always more names below a suffix, and more
// ports, than a list has.
func covers(pattern, other string) bool {
	host, port := splitPort(pattern)
	otherHost, otherPort := splitPort(other)
	return (port == "" || port == otherPort) && coversHost(host, otherHost)
}

func coversHost(host, other string) bool {
	if below, ok := strings.CutPrefix(host, "*"); ok {
		return strings.HasSuffix(other, below) && len(other) > len(below)
	}
	return host == other
}

// outside returns a single host that pattern matches and none of patterns does.
func outside(pattern string, patterns []string) (witness string, ok bool) {
	covered := func(p string) bool {
		return slices.ContainsFunc(patterns, func(by string) bool { return covers(by, p) })
	}
	if covered(pattern) {
		return "", false
	}
	below, any := strings.CutPrefix(pattern, "*")
	if !any {
		return pattern, true
	}
	// Only single hosts among patterns can match it, each of one name.
	for i := 0; ; i++ {
		name := string(rune('a' + i%26))
		if i >= 26 {
			name += strconv.Itoa(i / 26)
		}
		if !covered(name + below) {
			return name + below, true
		}
	}
}

// bothHosts returns the patterns of the hosts that both lists match, without redundant
// patterns.
func bothHosts(a, b []string) []string {
	met := []string{}
	for _, x := range a {
		for _, y := range b {
			if m, ok := meet(x, y); ok {
				met = append(met, m)
			}
		}
	}
	slices.Sort(met)
	met = slices.Compact(met)
	return slices.DeleteFunc(slices.Clone(met), func(p string) bool {
		return slices.ContainsFunc(met, func(by string) bool { return by != p && covers(by, p) })
	})
}

// meet returns the pattern of the hosts that both match, if there are any.
func meet(a, b string) (string, bool) {
	aHost, aPort := splitPort(a)
	bHost, bPort := splitPort(b)
	port := aPort
	switch {
	case aPort == "":
		port = bPort
	case bPort != "" && aPort != bPort:
		return "", false
	}
	if port != "" {
		port = ":" + port
	}
	switch {
	case coversHost(aHost, bHost):
		return bHost + port, true
	case coversHost(bHost, aHost):
		return aHost + port, true
	}
	return "", false
}
