package localplan

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/localestate"
	"berth/cmd/internal/watch"
	"berth/reconciler/gitrepo"
)

// Watched returns the name of what Plan reads, and a function that returns the state
// of its files.
func (r *Request) Watched() (name string, scan func() (watch.Files, error), err error) {
	at, err := gitrepo.Locate(r.Repo)
	if err != nil {
		return "", nil, cli.Usage(fmt.Errorf("plan: %w", localestate.NoRepository(r.Repo, "--repo DIR", err)))
	}
	name = "the work tree " + at.WorkTree
	switch {
	case r.Patch != "":
		name = r.Patch
	case r.Head != "":
		name = r.Head
	case at.WorkTree == "":
		return "", nil, fmt.Errorf("plan: %w", noWorkTree(at))
	}
	return name, func() (watch.Files, error) { return r.scan(at) }, nil
}

// scan returns the state of the refs, and of the change unless it is a commit.
func (r *Request) scan(at gitrepo.Place) (watch.Files, error) {
	s := watch.Files{Stamps: map[string]string{}}
	switch {
	case r.Patch != "":
		s.Dirs = append(s.Dirs, filepath.Dir(r.Patch))
		if err := s.AddFile(r.Patch, r.Patch); err != nil {
			return s, err
		}
	case r.Head == "":
		var err error
		if s, err = watch.Estate(at.WorkTree, slices.Collect(maps.Values(r.Tenants))...); err != nil {
			return s, err
		}
	}
	return s, s.AddRefs(at.GitDir, at.CommonDir)
}
