package gitrepo

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/reconciler"
	"berth/reconciler/gitrepo/object"
	"berth/schema"
)

// unknownSourceError means that in-force was made from a commit that is not in
// main's history.
type unknownSourceError struct {
	branch       string
	main, config plumbing.Hash
}

func (e *unknownSourceError) Error() string {
	return fmt.Sprintf("branch %s is at %s, but %s was in force: %v", e.branch, e.main, e.config, reconciler.ErrRewritten)
}

func (e *unknownSourceError) Unwrap() error { return reconciler.ErrRewritten }

// CheckInForce checks a new in-force tip against main. Main's history must
// contain the commit of main that the tip names, and each file of the tip. The
// check needs no local state, so it finds a rewritten history even after the
// mirror was lost. A tip that another process pushed while this process runs is
// refused without further checks.
func (f *inForce) CheckInForce(ctx context.Context, main, inForce plumbing.Hash) error {
	if err := f.moves.allow(inForce, f.options.Now()); err != nil {
		return err
	}
	if inForce.IsZero() || inForce == f.verified {
		return nil
	}
	if accepted, err := f.history.Mirror.Ref(acceptedRef); err == nil && accepted == inForce {
		return nil
	}
	c, err := f.history.Commit(inForce)
	if err != nil {
		return err
	}
	config, err := object.ParseID(c.Trailer(object.TrailerConfig))
	if err != nil {
		return fmt.Errorf("%s at %s was not written by Berth: %w", reconciler.BranchInForce, inForce, reconciler.ErrRewritten)
	}
	ok, err := f.history.IsAncestor(ctx, config, main)
	if err != nil {
		return err
	}
	if !ok {
		return &unknownSourceError{f.source, main, config}
	}
	if err := f.history.VerifyInForce(ctx, main.String(), inForce.String()); err != nil {
		return err
	}
	f.verified = inForce
	return nil
}

// VerifyInForce checks that main's history contains every file of the in-force
// commit at the same path as a plain file. Otherwise the error is
// reconciler.ErrRewritten: another process wrote to the branch, or main was
// rewritten. The cost follows the difference to main, unless the check fails.
func (r *history) VerifyInForce(ctx context.Context, main, inForce string) error {
	tip, err := object.ParseID(main)
	if err != nil {
		return err
	}
	files, err := r.differingFiles(ctx, main, inForce)
	if err != nil {
		return fmt.Errorf("in force at %s: %w", inForce, err)
	}
	if len(files) == 0 {
		return nil
	}
	err = r.walk(ctx, tip, func(c object.Commit) (bool, error) {
		for path, want := range files {
			got, err := r.Lookup(c.Tree, path)
			if err != nil && !errors.Is(err, reconciler.ErrUnreadable) { // unreadable: no file there
				return true, err
			}
			if err == nil && got.ID == want.ID && got.Mode == want.Mode {
				delete(files, path)
			}
		}
		return len(files) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("verify %s: %w", inForce, err)
	}
	for path := range files {
		return fmt.Errorf("in force at %s: %d files such as %q are not of main's history: %w", inForce, len(files), path,
			reconciler.ErrRewritten)
	}
	return nil
}

// differingFiles returns, by path, the files of the in-force commit that differ
// from main.
func (r *history) differingFiles(ctx context.Context, main, inForce string) (map[string]object.Entry, error) {
	a, err := r.Root(main)
	if err != nil {
		return nil, err
	}
	b, err := r.Root(inForce)
	if err != nil {
		return nil, err
	}
	changes, err := r.DiffTrees(ctx, a, b)
	if err != nil {
		return nil, err
	}
	files := map[string]object.Entry{}
	add := func(path string, e object.Entry) error {
		if e.IsDir() {
			return nil
		}
		if e.Mode != schema.ModePlain || len(files) > object.MaxFiles {
			return fmt.Errorf("%q is not a plain file, or there are more than %d: %w", path, object.MaxFiles, reconciler.ErrRewritten)
		}
		files[path] = e
		return nil
	}
	for _, c := range changes {
		if c.To.ID.IsZero() {
			continue // a held new file: it is missing in force
		}
		// A path that main cannot compare, such as an unreadable part, is one change
		// of the whole directory.
		err := r.Walk(ctx, c.Path, c.To, object.MaxDepth, add)
		if errors.Is(err, reconciler.ErrUnreadable) {
			err = fmt.Errorf("%w: %w", reconciler.ErrRewritten, err) // Berth never writes such a tree
		}
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}
