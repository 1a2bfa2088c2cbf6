package pulls

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/reconciler"
	"berth/reconciler/plan"
)

// flushTimeout is how long recording a result may take before it is shown.
const flushTimeout = 15 * time.Second

// target is what a result is shown on: a pull request, or a group of a merge
// queue.
type target struct {
	pull int
	ref  string
}

func (t target) String() string {
	if t.pull == 0 {
		return t.ref
	}
	return fmt.Sprintf("pull request %d", t.pull)
}

// showing is what is to be shown of one target.
type showing struct {
	target
	head     string // commit the checks are of
	checks   []plan.Check
	plan     *string    // of the comment; nil: it stays as it is
	shown    plan.Shown // as recorded; zero of a group
	recorded uint64     // the writer's count that shown is recorded by
	known    bool       // it was recorded as shown before: it is only made sure that it is

	tries int
	after time.Time // it is tried again
	again bool      // somebody asked for it once more while it was being shown
}

// says is all of a result that can be told apart by.
func (x *showing) says() string { return x.head + " " + x.shown.Key + " " + keysOf(x.checks) }

// keysOf is a key over checks.
func keysOf(checks []plan.Check) string {
	var b strings.Builder
	for _, c := range checks {
		fmt.Fprintf(&b, "%q %q\n", c.Name, c.Key)
	}
	sum := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(sum[:16])
}

// shows is what is to be shown, and what was. Computing is never held up by how
// slowly a forge lets things be written: of each target only the newest result
// waits. A merge queue, which stands still until it is told, goes first; then what
// is new, or was asked for, of the newest pull request.
type shows struct {
	mu    sync.Mutex
	waits map[target]*showing
	said  map[target]string // what was last shown in this run
	asked map[int]bool      // the pull requests that somebody wants to be shown again
	until time.Time         // the forge lets nothing through before
	heads map[string]string // the commit of each group by its ref, as last listed
}

func newShows() *shows {
	return &shows{waits: map[target]*showing{}, said: map[target]string{}, asked: map[int]bool{}}
}

// add takes a result in, unless what was shown says the same, and says whether
// there is something to show.
func (s *shows) add(x *showing) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.waits[x.target]
	switch {
	case was == nil && s.said[x.target] == x.says():
		return false
	case was != nil && was.says() == x.says():
		return true // with the tries it had
	}
	s.waits[x.target] = x
	return true
}

// next is what is to be shown now, or in how long something is; 0: never.
func (s *shows) next(now time.Time) (*showing, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.until.Sub(now); d > 0 {
		return nil, d
	}
	var best *showing
	var wait time.Duration
	for _, x := range s.waits {
		if d := x.after.Sub(now); d > 0 {
			if wait == 0 || d < wait {
				wait = d
			}
			continue
		}
		if best == nil || s.before(x, best) {
			best = x
		}
	}
	if best != nil {
		delete(s.said, best.target) // half shown is not shown
		best.again = false
	}
	return best, wait
}

// before says whether x is shown before y; with mu held.
func (s *shows) before(x, y *showing) bool {
	rank := func(x *showing) int {
		switch {
		case x.pull == 0:
			return 0
		case !x.known || s.asked[x.pull]:
			return 1
		}
		return 2
	}
	return cmp.Or(cmp.Compare(rank(x), rank(y)), cmp.Compare(y.pull, x.pull), cmp.Compare(x.ref, y.ref)) < 0
}

// done notes that a result was shown, or, if it was not, will not be.
func (s *shows) done(x *showing, shown bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if shown && x.again {
		return // what of it came before that is not known
	}
	if s.waits[x.target] == x {
		delete(s.waits, x.target)
		delete(s.asked, x.pull)
	}
	if shown {
		s.said[x.target] = x.says()
	}
}

// later puts a result off.
func (s *shows) later(x *showing, until time.Time) (tries int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.tries++
	x.after = until
	return x.tries
}

// hold has nothing shown before a time.
func (s *shows) hold(until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = until
}

// drop forgets a target.
func (s *shows) drop(t target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waits, t)
	delete(s.said, t)
	delete(s.asked, t.pull)
}

// again forgets what was shown of a pull request; 0: of everything.
func (s *shows) again(pull int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pull == 0 {
		clear(s.said)
	} else {
		s.asked[pull] = true
	}
	delete(s.said, target{pull: pull})
	for t, x := range s.waits {
		if pull == 0 || t.pull == pull {
			x.again = true
		}
	}
}

// listed takes in the groups that there are.
func (s *shows) listed(heads map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heads = heads
}

// on says whether something waits to be shown on a commit, or a group is made of it.
func (s *shows) on(commit string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.waits {
		if x.head == commit {
			return true
		}
	}
	return slices.Contains(slices.Collect(maps.Values(s.heads)), commit)
}

// Shows says whether checks are shown on a commit, or will be: it is the head of an
// open pull request as far as is known, or of a group of the merge queue.
func (r *Pulls) Shows(commit string) bool {
	if r.shows.on(commit) {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pulls {
		if p.Head == commit {
			return true
		}
	}
	return false
}

// knows says whether something was shown of a target or waits to be.
func (s *shows) knows(t target) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.said[t] != "" || s.waits[t] != nil
}

// refs are the groups of which something is known.
func (s *shows) refs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for t := range s.said {
		if t.pull == 0 {
			out = append(out, t.ref)
		}
	}
	for t := range s.waits {
		if t.pull == 0 && s.said[t] == "" {
			out = append(out, t.ref)
		}
	}
	return out
}

// Publish shows one result, the most urgent, and says when to show another. It is
// one item of its queue, so that there is one writer, and others who speak with
// people have their turn in between.
func (r *Pulls) Publish(ctx context.Context) (again time.Duration, err error) {
	x, wait := r.shows.next(r.o.Now())
	if x == nil {
		return wait, nil
	}
	err = r.showOne(ctx, x)
	var later *reconciler.RetryAfterError
	switch {
	case ctx.Err() != nil:
		return 0, nil
	case err == nil:
		r.shows.done(x, true)
	case errors.As(err, &later): // for anything else it would be the same
		r.shows.hold(later.At)
		return 0, err
	case errors.Is(err, reconciler.ErrHeadMoved):
		r.o.Log.Info("pull request moved on; its comment is left alone", "pull", x.pull, "planned", reconciler.Short(x.head), "why", err)
		r.shows.done(x, false)
		r.Heard(x.pull)
		r.o.EnqueueAfter(reconciler.Item{Task: reconciler.TaskPull, Pull: x.pull}, movedAgain)
	case errors.Is(err, reconciler.ErrNotFound):
		r.o.Log.Warn("nothing to show it on", "what", x.target.String(), "error", err)
		r.shows.done(x, false)
	default:
		backoff := min(500*time.Millisecond<<min(x.tries, 10), 30*time.Second)
		tries := r.shows.later(x, r.o.Now().Add(backoff))
		r.o.Log.Warn("not shown; again later", "what", x.target.String(), "tries", tries, "error", err)
		if tries >= maxPullTries {
			r.shows.done(x, false)
		}
	}
	return time.Nanosecond, nil
}

// showOne shows a result: it is recorded first, then come the checks, then the
// comment, so that what breaks off leaves nobody waiting for a check and nothing
// shown that is not known afterwards. What was merged on a plan that passed was
// merged on that one, whatever was on its way: nobody saw the other.
func (r *Pulls) showOne(ctx context.Context, x *showing) error {
	passed := false
	if x.pull != 0 {
		flush, cancel := context.WithTimeout(ctx, flushTimeout)
		err := r.o.Status.FlushTo(flush, x.recorded)
		cancel()
		if err != nil {
			return fmt.Errorf("%s: nothing is shown that is not recorded: %w", x.target, err)
		}
		v := r.reviews.review(x.pull)
		passed = v != nil && v.Passed && v.Head == x.head && v.Key != x.shown.Key
	}
	if passed {
		if _, err := r.shownTo(ctx, x, passed); err != nil {
			return err
		}
	}
	for _, c := range x.checks {
		c.Pull = x.pull
		if err := r.o.Forge.Report(ctx, x.head, c); err != nil {
			return fmt.Errorf("%s: check %s: %w", x.target, c.Name, err)
		}
	}
	if x.pull == 0 {
		return nil
	}
	if !passed || x.plan == nil {
		r.reviews.wasShown(x.pull, x.shown)
	}
	if x.plan == nil {
		return nil
	}
	pr, err := r.shownTo(ctx, x, passed)
	if err != nil {
		return err
	}
	if passed {
		r.reviews.wasShown(x.pull, x.shown)
	}
	// A merge that waited for nothing but the checks is one of this head.
	if pr.Head != x.head || !pr.Open && !pr.Merged || pr.BaseBranch != r.o.Branch {
		return fmt.Errorf("it was planned at %s, the forge has it at %s for %s (open: %t): %w", reconciler.Short(x.head), reconciler.Short(pr.Head), pr.BaseBranch, pr.Open, reconciler.ErrHeadMoved)
	}
	return r.o.Forge.Comment(ctx, x.pull, reconciler.Comment{Plan: x.plan})
}

// shownTo is the pull request that a result is shown on; ErrMoved if it was merged
// on an earlier one, that passed.
func (r *Pulls) shownTo(ctx context.Context, x *showing, passed bool) (reconciler.PullRequest, error) {
	pr, err := r.o.Forge.Pull(ctx, x.pull)
	if err == nil && passed && pr.Merged {
		r.reviews.notShown(x.pull, x.shown)
		err = fmt.Errorf("it was merged on the plan that was shown before: %w", reconciler.ErrHeadMoved)
	}
	return pr, err
}
