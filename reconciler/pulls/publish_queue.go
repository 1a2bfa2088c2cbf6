package pulls

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/reconciler/plan"
)

// target is the place of a result: a pull request, or a group of a merge queue.
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

// publication is a result to publish on a target.
type publication struct {
	target
	author   string // of the pull request
	head     string // commit of the checks
	checks   []plan.Check
	plan     *string    // of the comment; nil: keep the present one
	shown    plan.Shown // as recorded; zero for a group
	recorded uint64     // the status writer's count that shown is recorded by
	known    bool       // it was recorded as shown before; publishing only makes sure

	tries int
	after time.Time // it is tried again
	again bool      // a user asked for it while it was being published
}

// key is over all of a publication.
func (x *publication) key() string { return x.head + " " + x.shown.Key + " " + keysOf(x.checks) }

// keysOf is a key over checks.
func keysOf(checks []plan.Check) string {
	var b strings.Builder
	for _, c := range checks {
		fmt.Fprintf(&b, "%q %q\n", c.Name, c.Key)
	}
	sum := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(sum[:16])
}

// publishQueue holds the newest result of each target until it is published, so
// that planning never waits for the forge's rate limit. A merge queue waits for its
// checks and goes first; then new results and those that a user asked for; then the
// others. Among equals, results that are on the remote go first, because the others wait for
// a push. Then authors take turns; of one author, the newest pull request goes first.
type publishQueue struct {
	mu        sync.Mutex
	waiting   map[target]*publication
	published map[target]string // key of what this run published last
	requested map[int]bool      // pull requests whose result a user asked for
	until     time.Time         // the forge accepts nothing before
	turns     map[string]int    // the last turn of each author
	turn      int               // the last of all
	groups    map[string]string // head of each group by its ref, as listed last
}

func newPublishQueue() *publishQueue {
	return &publishQueue{waiting: map[target]*publication{}, published: map[target]string{}, requested: map[int]bool{},
		turns: map[string]int{}}
}

// add makes x the waiting result of its target. It returns false if nothing waits and x
// equals the last published result.
func (q *publishQueue) add(x *publication) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	was := q.waiting[x.target]
	switch {
	case was == nil && q.published[x.target] == x.key():
		return false
	case was == nil || was.key() != x.key(): // else it keeps its tries
		q.waiting[x.target] = x
	}
	return true
}

// recorded is the status writer's count by which all results that wait are recorded.
func (q *publishQueue) recorded() (count uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, x := range q.waiting {
		count = max(count, x.recorded)
	}
	return count
}

// next is what to publish now; nil: nothing, or only after wait. pushed is the status writer's
// count up to which results are on the remote.
func (q *publishQueue) next(now time.Time, pushed uint64) (x *publication, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if d := q.until.Sub(now); d > 0 {
		return nil, d
	}
	var best *publication
	for _, x := range q.waiting {
		if d := x.after.Sub(now); d > 0 {
			if wait == 0 || d < wait {
				wait = d
			}
			continue
		}
		if best == nil || q.compare(x, best, pushed) < 0 {
			best = x
		}
	}
	if best != nil {
		q.turn++
		q.turns[best.author] = q.turn
		delete(q.published, best.target) // it may be published in part
		best.again = false
	}
	return best, wait
}

// compare orders by urgency; with mu held.
func (q *publishQueue) compare(x, y *publication, pushed uint64) int {
	rank := func(x *publication) int {
		switch {
		case x.pull == 0:
			return 0
		case !x.known || q.requested[x.pull]:
			return 1
		}
		return 2
	}
	unpushed := func(x *publication) uint64 { return max(x.recorded, pushed) - pushed }
	return cmp.Or(cmp.Compare(rank(x), rank(y)), cmp.Compare(min(unpushed(x), 1), min(unpushed(y), 1)),
		cmp.Compare(q.turns[x.author], q.turns[y.author]), cmp.Compare(y.pull, x.pull), cmp.Compare(x.ref, y.ref))
}

// done removes a result that was published or, with published false, cannot be.
func (q *publishQueue) done(x *publication, published bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if published && x.again {
		return // a user asked for it again, and may not have seen the first part
	}
	if q.waiting[x.target] == x {
		delete(q.waiting, x.target)
		delete(q.requested, x.pull)
	}
	if len(q.waiting) == 0 { // whoever comes next, nobody waits longer
		clear(q.turns)
	}
	if published {
		q.published[x.target] = x.key()
	}
}

// retry puts a result off, and returns how often it was tried.
func (q *publishQueue) retry(x *publication, at time.Time) (tries int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	x.tries++
	x.after = at
	return x.tries
}

// pause publishes nothing before a time.
func (q *publishQueue) pause(until time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.until = until
}

// drop forgets a target.
func (q *publishQueue) drop(t target) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.waiting, t)
	delete(q.published, t)
	delete(q.requested, t.pull)
}

// request publishes the result of a pull request again; 0: of all.
func (q *publishQueue) request(pull int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if pull == 0 {
		clear(q.published)
	} else {
		q.requested[pull] = true
	}
	delete(q.published, target{pull: pull})
	for t, x := range q.waiting {
		if pull == 0 || t.pull == pull {
			x.again = true
		}
	}
}

// setGroups takes in the groups of the merge queue. It returns the new ones, and
// forgets those that are gone.
func (q *publishQueue) setGroups(heads map[string]string) (unknown []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.groups = heads
	gone := func(t target) bool { return t.pull == 0 && heads[t.ref] == "" }
	maps.DeleteFunc(q.published, func(t target, _ string) bool { return gone(t) })
	maps.DeleteFunc(q.waiting, func(t target, _ *publication) bool { return gone(t) })
	for ref := range heads {
		if t := (target{ref: ref}); q.published[t] == "" && q.waiting[t] == nil {
			unknown = append(unknown, ref)
		}
	}
	return unknown
}

// isOn reports whether a result of a commit waits, or a group has it as its head.
func (q *publishQueue) isOn(commit string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, x := range q.waiting {
		if x.head == commit {
			return true
		}
	}
	return slices.Contains(slices.Collect(maps.Values(q.groups)), commit)
}

// knows reports whether a result of a target is published or waits.
func (q *publishQueue) knows(t target) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.published[t] != "" || q.waiting[t] != nil
}
