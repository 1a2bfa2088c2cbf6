package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/reconciler"
)

// pulls fetches the heads of pull requests into the scratch store. The holder of
// the turn may use it.
type pulls struct {
	history  *history
	options  Options
	remote   *remote
	turn     turn
	seen     func() Tips // known tips of the mirror
	refusals refusals
	scratch  *scratch
}

// head returns the ref of the head of a pull request; "": there are none.
func (p *pulls) head(number int) string {
	if p.options.PullRefs.Head == nil {
		return ""
	}
	return p.options.PullRefs.Head(number)
}

// session calls use with the remote's refs.
func (p *pulls) session(ctx context.Context, use func(context.Context, *download) error) error {
	release, err := p.turn.acquire(ctx)
	if err != nil {
		return err
	}
	defer release()
	p.scratch.renew(ctx)
	ctx, cancel := context.WithTimeout(ctx, p.options.Timeout)
	defer cancel()
	d, err := p.remote.advertise(ctx)
	if err != nil {
		return err
	}
	defer d.close() //nolint:errcheck // read to its end
	return use(ctx, d)
}

// groups returns what begins the refs of groups of the branch; "": there are none.
func (p *pulls) groups() string {
	if p.options.PullRefs.Groups == nil {
		return ""
	}
	return p.options.PullRefs.Groups(p.options.Branch)
}

// Groups returns the commits of the groups of the merge queue, by ref.
func (p *pulls) Groups(ctx context.Context) (map[string]string, error) {
	out, prefix := map[string]string{}, p.groups()
	if prefix == "" {
		return out, nil
	}
	err := p.session(ctx, func(_ context.Context, d *download) error {
		for name, h := range d.refs {
			if strings.HasPrefix(name, prefix) {
				out[name] = h.String()
			}
		}
		return nil
	})
	return out, err
}

// FetchGroup is FetchPull for a group of the merge queue.
func (p *pulls) FetchGroup(ctx context.Context, ref string) (string, error) {
	if prefix := p.groups(); prefix == "" || !strings.HasPrefix(ref, prefix) {
		return "", fmt.Errorf("%s is no group of the merge queue of %s: %w", ref, p.options.Branch, reconciler.ErrNotFound)
	}
	return p.fetchRef(ctx, ref)
}

// FetchPull fetches the head of a pull request and returns its commit. The head
// is stored outside the mirror and only for some time, so call FetchPull before
// each use. A head larger than Options.MaxPull is refused, and not fetched again
// for an hour. reconciler.ErrNotFound means that the remote has no such pull
// request.
func (p *pulls) FetchPull(ctx context.Context, number int) (string, error) {
	if number <= 0 || p.head(number) == "" {
		return "", fmt.Errorf("pull request %d: %w", number, reconciler.ErrNotFound)
	}
	head, err := p.fetchRef(ctx, p.head(number))
	if err != nil {
		return "", fmt.Errorf("pull request %d: %w", number, err)
	}
	return head, nil
}

// fetchRef is FetchPull for a ref.
func (p *pulls) fetchRef(ctx context.Context, ref string) (head string, err error) {
	err = p.session(ctx, func(ctx context.Context, d *download) error {
		h := d.refs[ref]
		if h.IsZero() {
			return fmt.Errorf("%s has no %s: %w", p.remote.url, ref, reconciler.ErrNotFound)
		}
		head = h.String()
		if p.holds(h) {
			return nil
		}
		size, err := p.refusals.fetch(ctx, d, p.order(h), ref, "a pull request", p.options.Now)
		p.scratch.bytes += size
		if err != nil {
			return err
		}
		// The reader of the tree reports faults inside it.
		if _, err = p.history.RootEntries(h); errors.Is(err, reconciler.ErrUnreadable) {
			return nil
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return head, nil
}

// FetchPulls fetches several heads with one request. It returns the heads that
// are stored. For the others, FetchPull returns the error.
func (p *pulls) FetchPulls(ctx context.Context, numbers []int) (map[int]string, error) {
	out := map[int]string{}
	err := p.session(ctx, func(ctx context.Context, d *download) error {
		if wants := p.missing(d, numbers); len(wants) > 0 {
			size, err := d.fetch(ctx, p.order(wants...))
			p.scratch.bytes += size
			if err != nil { // one bad head may fail the whole request
				p.options.Log.InfoContext(ctx, "heads of pull requests not fetched together; fetching one by one", "together", len(wants),
					"error", err.Error())
			}
		}
		for _, n := range numbers {
			if h := d.refs[p.head(n)]; p.holds(h) {
				out[n] = h.String()
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// missing returns the heads that are not stored, without those that were refused recently.
func (p *pulls) missing(d *download, numbers []int) (heads []plumbing.Hash) {
	for _, n := range numbers {
		if h := d.refs[p.head(n)]; !h.IsZero() && !p.holds(h) && p.refusals.of(p.head(n), h, p.options.Now()) == nil {
			heads = append(heads, h)
		}
	}
	return heads
}

// PullEvidence returns the evidence in the head of a pull request: its author and
// the requests in its trailers. It proves nothing about main.
func (p *pulls) PullEvidence(ctx context.Context, number int) (reconciler.Evidence, error) {
	head, err := p.FetchPull(ctx, number)
	if err != nil {
		return reconciler.Evidence{}, err
	}
	e, err := p.history.HeadEvidence(ctx, head)
	if err != nil {
		return e, fmt.Errorf("pull request %d: %w", number, err)
	}
	return e, nil
}

// holds reports whether a head is stored.
func (p *pulls) holds(h plumbing.Hash) bool {
	return p.history.Mirror.Has(h) || p.history.Scratch.Has(h)
}

// order returns the order for heads that are not stored.
func (p *pulls) order(heads ...plumbing.Hash) order {
	slices.SortFunc(heads, func(a, b plumbing.Hash) int { return strings.Compare(a.String(), b.String()) })
	seen := p.seen()
	haves := slices.DeleteFunc([]plumbing.Hash{seen.Main, seen.InForce}, func(h plumbing.Hash) bool { return !p.history.Mirror.Has(h) })
	return order{into: p.history.Scratch, wants: slices.Compact(heads), haves: haves, limit: p.options.MaxPull}
}
