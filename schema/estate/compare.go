package estate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"berth/schema"
)

// Compare lists the files of the estate that differ between two snapshots in content or
// mode, sorted by path. Parts with equal hashes cost nothing. An unreadable part of to
// is skipped, because its changes are unknown. An unreadable part of from is an
// ErrUnreadable.
func (l *Loader) Compare(ctx context.Context, from, to schema.Snapshot) ([]schema.PathChange, error) {
	var out []schema.PathChange
	err := l.compare(ctx, from, to, func(schema.Part, error) error { return nil }, func(was, is *schema.File) {
		switch {
		case was == nil:
			out = append(out, schema.PathChange{Path: is.Path, To: is.Blob})
		case is == nil:
			out = append(out, schema.PathChange{Path: was.Path, From: was.Blob})
		default:
			out = append(out, schema.PathChange{Path: is.Path, From: was.Blob, To: is.Blob})
		}
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b schema.PathChange) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

// compare visits the files that differ; a missing one is nil. It skips an unreadable
// part of to if unread reports true.
func (l *Loader) compare(
	ctx context.Context, from, to schema.Snapshot, unread func(schema.Part, error) error, visit func(was, is *schema.File),
) error {
	was, err := from.Parts(ctx)
	if err != nil {
		return fmt.Errorf("list the estate: %w", err)
	}
	is, err := to.Parts(ctx)
	if err != nil {
		return fmt.Errorf("list the estate: %w", err)
	}
	both := func(a, b schema.Part) error {
		now, err := l.files(ctx, to, b)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			if err = unread(b, err); err != nil {
				return fmt.Errorf("%w: %s: %w", ErrUnreadable, b.Name, err)
			}
			return nil
		}
		then, err := l.files(ctx, from, a)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrUnreadable, a.Name, err)
		}
		differ(then, now, visit)
		return nil
	}
	for len(was) > 0 || len(is) > 0 { // both are in order of name
		var a, b schema.Part
		switch {
		case len(is) == 0 || len(was) > 0 && was[0].Name < is[0].Name:
			a, was = was[0], was[1:]
		case len(was) == 0 || is[0].Name < was[0].Name:
			b, is = is[0], is[1:]
		default:
			a, b, was, is = was[0], is[0], was[1:], is[1:]
		}
		if a == b {
			continue
		}
		if !ours(a) {
			a = schema.Part{}
		}
		if !ours(b) {
			b = schema.Part{}
		}
		if err := both(a, b); err != nil {
			return err
		}
	}
	return nil
}

// files returns the files of a part, listed or cached; none for a missing part.
func (l *Loader) files(ctx context.Context, s schema.Snapshot, p schema.Part) ([]schema.File, error) {
	if p.Name == "" {
		return nil, nil
	}
	if t := l.cache.get(p.Name, p.Hash); t != nil {
		return t.files, t.excess
	}
	return s.Files(ctx, p)
}

// differ merges two lists sorted by path.
func differ(was, is []schema.File, visit func(was, is *schema.File)) {
	for len(was) > 0 || len(is) > 0 {
		switch {
		case len(is) == 0 || len(was) > 0 && was[0].Path < is[0].Path:
			visit(&was[0], nil)
			was = was[1:]
		case len(was) == 0 || is[0].Path < was[0].Path:
			visit(nil, &is[0])
			is = is[1:]
		default:
			if was[0].Blob != is[0].Blob || was[0].Mode != is[0].Mode {
				visit(&was[0], &is[0])
			}
			was, is = was[1:], is[1:]
		}
	}
}
