package estate

import (
	"context"
	"fmt"
	"iter"
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
	for a, b := range merged(was, is, func(p schema.Part) string { return p.Name }) {
		if a != nil && b != nil && *a == *b {
			continue
		}
		now, err := l.files(ctx, to, b)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			if err = unread(*b, err); err != nil {
				return fmt.Errorf("%w: %s: %w", ErrUnreadable, b.Name, err)
			}
			continue
		}
		then, err := l.files(ctx, from, a)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrUnreadable, a.Name, err)
		}
		differ(then, now, visit)
	}
	return nil
}

// files returns the files of a part, listed or cached; none for nil and for a part that is not of the estate.
func (l *Loader) files(ctx context.Context, s schema.Snapshot, p *schema.Part) ([]schema.File, error) {
	if p == nil || !ours(*p) {
		return nil, nil
	}
	if t := l.cache.get(p.Name, p.Hash); t != nil {
		return t.files, t.excess
	}
	return s.Files(ctx, *p)
}

// differ visits the files that differ between two lists sorted by path; a missing one is nil.
func differ(was, is []schema.File, visit func(was, is *schema.File)) {
	for a, b := range merged(was, is, func(f schema.File) string { return f.Path }) {
		if a == nil || b == nil || a.Blob != b.Blob || a.Mode != b.Mode {
			visit(a, b)
		}
	}
}

// merged yields the items of two lists in the order of their names, by which both are sorted. It yields items of one name
// together, and nil where a list has none.
func merged[T any](was, is []T, name func(T) string) iter.Seq2[*T, *T] {
	return func(yield func(was, is *T) bool) {
		for len(was)+len(is) > 0 {
			order := -1
			switch {
			case len(was) == 0:
				order = 1
			case len(is) > 0:
				order = strings.Compare(name(was[0]), name(is[0]))
			}
			var a, b *T
			if order <= 0 {
				a, was = &was[0], was[1:]
			}
			if order >= 0 {
				b, is = &is[0], is[1:]
			}
			if !yield(a, b) {
				return
			}
		}
	}
}
