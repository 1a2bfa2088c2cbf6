package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/reconciler"
	"berth/reconciler/gitrepo/object"
)

// StoreAgain is the delay before a head that could not be stored is fetched
// again.
const StoreAgain = 5 * time.Minute

// refusals records, by ref, heads that are not fetched again for a while. The
// holder of the turn may use it.
type refusals map[string]refusal

type refusal struct {
	head  plumbing.Hash
	until time.Time
	err   error
}

// of returns the error that a head was refused with, if it must not be fetched
// now.
func (r refusals) of(ref string, head plumbing.Hash, now time.Time) error {
	if was := r[ref]; was.head == head && now.Before(was.until) {
		return was.err
	}
	return nil
}

// add records a refusal, so that a large head is not fetched again for each
// reconcile.
func (r refusals) add(ref string, head plumbing.Hash, now time.Time, long time.Duration, err error) {
	for n, was := range r {
		if !now.Before(was.until) {
			delete(r, n)
		}
	}
	r[ref] = refusal{head, now.Add(long), err}
}

// fetch fetches one head, the only want of o, unless it was refused recently. It
// refuses a head that exceeds the limit, needs too much time, or cannot be
// stored. owner is the subject of the limit.
func (r refusals) fetch(ctx context.Context, d *download, o order, ref, owner string, now func() time.Time) (size int64, err error) {
	head := o.wants[0]
	if err := r.of(ref, head, now()); err != nil {
		return 0, err
	}
	size, err = d.fetch(ctx, o)
	again := StoreAgain
	switch {
	case errors.Is(err, object.ErrTooLarge):
		again = scratchAge
		err = fmt.Errorf("its commits bring more than %s, the limit for %s; take the large files out of them: %w", inMiB(o.limit), owner,
			reconciler.ErrRefused)
	case errors.Is(err, errStore) && !o.strict && errors.Is(ctx.Err(), context.DeadlineExceeded):
		again = scratchAge
		err = fmt.Errorf("its commits expand to more than can be read in time; make them smaller: %w: %w", reconciler.ErrRefused, err)
	case !errors.Is(err, errStore): // the head is faulty or the disk is full
		return size, err
	}
	r.add(ref, head, now(), again, err)
	return size, err
}

// inMiB formats a number of bytes for people.
func inMiB(n int64) string {
	if n%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d bytes", n)
}
