// Package localestate reads the estate in a directory of this machine. It must not
// know what a command does with it.
package localestate

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

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

// Root returns dir or the nearest directory above it that has platform/ or tenants/.
func Root(dir string) (string, error) {
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
			return "", fmt.Errorf("no estate found in %s: it has neither platform/ nor tenants/; run the command in a clone of the estate, or give --repo DIR", abs)
		}
	}
}

// WorkTree returns the work tree of a repository, without ignored files.
func WorkTree(ctx context.Context, repo *gitrepo.Local, at gitrepo.Place) (schema.Snapshot, error) {
	ignored, err := repo.Ignored(ctx, at)
	if err != nil {
		return nil, err
	}
	return estate.WorkTree(at.WorkTree, ignored)
}
