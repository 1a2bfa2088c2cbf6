// Package localestate reads the estate in a directory of this machine. It must not
// know the commands that use it.
package localestate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/runtimes/backends"
	"berth/schema"
	"berth/schema/estate"
)

// NewLoader returns a loader that knows the definitions of all runtimes. The first call in a
// process compiles them.
func NewLoader() (*estate.Loader, error) {
	l, err := compiled()
	if err != nil {
		return nil, err
	}
	return l.WithEmptyCache(), nil
}

var compiled = sync.OnceValues(func() (*estate.Loader, error) {
	return estate.New(estate.Options{Backends: backends.Definitions(), Releases: backends.Releases(), Checks: backends.Checks()})
})

// Load reads the estate in a directory.
func Load(ctx context.Context, dir string) (*estate.Result, error) {
	snap, err := estate.Dir(dir)
	if err != nil {
		return nil, err
	}
	loader, err := NewLoader()
	if err != nil {
		return nil, err
	}
	return loader.Load(ctx, snap)
}

// ErrNoEstate is the error for a directory in which a command finds no estate.
var ErrNoEstate = errors.New("no estate found")

// Missing is the error of every command for a directory without an estate, and why says what is
// missing there. option is how the command names another directory, such as --repo DIR.
func Missing(dir, why, option string) error {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	if _, err := os.Stat(dir); err != nil {
		why = "there is no such directory"
	}
	return fmt.Errorf("%w in %s: %s; run the command in a clone of the estate, or give %s; berth init DIR makes a new estate", ErrNoEstate,
		dir, why, option)
}

// NoRepository returns Missing if err is reconciler.ErrNotFound, else err.
func NoRepository(dir, option string, err error) error {
	if errors.Is(err, reconciler.ErrNotFound) {
		return Missing(dir, "it is not in a Git repository", option)
	}
	return err
}

// NoDocuments says why a directory has no estate.
const NoDocuments = "it has neither platform/ nor tenants/"

// Root returns dir or the nearest directory above it that has platform/ or tenants/. option is that
// of Missing.
func Root(dir, option string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for at := abs; ; at = filepath.Dir(at) {
		for _, name := range []string{"platform", "tenants"} {
			if info, err := os.Stat(filepath.Join(at, name)); err == nil && info.IsDir() {
				return at, nil
			}
		}
		if at == filepath.Dir(at) {
			return "", Missing(abs, NoDocuments, option)
		}
	}
}

// HasDocuments reports whether a tree has platform/ or tenants/.
func HasDocuments(ctx context.Context, snap schema.Snapshot) (bool, error) {
	parts, err := snap.Parts(ctx)
	return slices.ContainsFunc(parts, func(p schema.Part) bool {
		top, _, _ := strings.Cut(p.Name, "/")
		return p.Dir && (top == "platform" || top == "tenants")
	}), err
}

// WorkTree returns the work tree of a repository, without ignored files.
func WorkTree(ctx context.Context, repo *gitrepo.Local, at gitrepo.Place) (schema.Snapshot, error) {
	ignored, err := repo.Ignored(ctx, at)
	if err != nil {
		return nil, err
	}
	return estate.WorkTree(at.WorkTree, ignored)
}
