package schema

import (
	"slices"
	"strings"
)

// Release is a series of releases of the software that a runtime deploys, such as
// 22.05 with its maintenance releases 22.05.1 and so on.
type Release struct {
	Series string
	// From are the series whose data this one takes over: an upgrade from one of them
	// is possible in one step.
	From []string
	// Step says that Berth does not run this series. An instance passes through it
	// in an upgrade between two that Berth runs.
	Step bool
}

// Releases are all series that a runtime knows, oldest first. Nil: it knows none, and
// every version is allowed.
type Releases []Release

// Of returns the release of a version: the series itself, or one of its maintenance
// releases. It returns nil for an unknown one.
func (r Releases) Of(version string) *Release {
	for i := range r {
		if s := r[i].Series; version == s || strings.HasPrefix(version, s+".") {
			return &r[i]
		}
	}
	return nil
}

// Run returns the series that Berth runs.
func (r Releases) Run() []string {
	var all []string
	for _, one := range r {
		if !one.Step {
			all = append(all, one.Series)
		}
	}
	return all
}

// Path returns the series of the shortest upgrade from one to another, both included.
// It returns nil without such a path: an upgrade never leads to an earlier series.
func (r Releases) Path(from, to string) []string {
	path := []string{from}
	for path[len(path)-1] != to {
		next := ""
		for _, one := range r {
			if slices.Contains(one.From, path[len(path)-1]) {
				next = one.Series // the latest of them
			}
			if one.Series == to {
				break
			}
		}
		if next == "" || slices.Contains(path, next) {
			return nil
		}
		path = append(path, next)
	}
	return path
}
