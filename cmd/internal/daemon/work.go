package daemon

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/webhooks"
)

// work is one request of a delivery: an item to reconcile, or checks to report again.
// The journal of deliveries contains it.
type work struct {
	Do     reconciler.Task `json:"do"`
	Pull   int             `json:"pull,omitempty"`
	Ref    string          `json:"ref,omitempty"`   // of a group of the merge queue
	Commit string          `json:"again,omitempty"` // whose checks are requested again: done once they are reported
}

func (w work) item() reconciler.Item { return reconciler.Item{Task: w.Do, Pull: w.Pull, Ref: w.Ref} }

// workOf returns the work of a delivery, without duplicates.
func workOf(d webhooks.Delivery) []work {
	var out []work
	for _, e := range d.Events {
		pull := work{Do: reconciler.TaskPulls}
		if e.Number > 0 {
			pull = work{Do: reconciler.TaskPull, Pull: e.Number}
		}
		switch e.Kind {
		case webhooks.Push:
			out = append(out, work{Do: reconciler.TaskEstate})
		case webhooks.Rerequest:
			pull.Commit = e.Commit
			out = append(out, pull)
		case webhooks.PullRequest:
			out = append(out, pull)
		case webhooks.Command:
			out = append(out, work{Do: reconciler.TaskCommands})
		case webhooks.MergeGroup: // the task finds out if the group is gone
			out = append(out, work{Do: reconciler.TaskGroup, Ref: e.Ref})
		default: // authentic, but not understood: reconcile everything
			out = append(out, work{Do: reconciler.TaskEstate}, work{Do: reconciler.TaskPulls})
		}
	}
	slices.SortFunc(out, func(a, b work) int {
		return cmp.Or(cmp.Compare(a.Do, b.Do), cmp.Compare(a.Pull, b.Pull), cmp.Compare(a.Ref, b.Ref), cmp.Compare(a.Commit, b.Commit))
	})
	return slices.Compact(out)
}

// dispatcher starts work.
type dispatcher struct {
	loop interface {
		Enqueue(reconciler.Item)
		ShowAgain(pull int)
	}
	forge     interface{ Rerequest(commit string) }
	requested func(work) // called once every later report of the checks counts
}

func (d *dispatcher) start(w work) {
	if w.Commit != "" {
		d.forge.Rerequest(w.Commit) // a completed run cannot be reopened: a new one is made
		d.requested(w)
		d.loop.ShowAgain(w.Pull)
	}
	d.loop.Enqueue(w.item())
}

// reruns are the checks that users requested again, until they are reported. The work
// is done only then, so that no restart loses it.
type reruns struct {
	mu       sync.Mutex
	byCommit map[string]*rerun
}

// rerun is about the checks of one commit.
type rerun struct {
	done map[work]func()
	left map[string]bool // the checks not reported since the request
}

func newReruns() *reruns { return &reruns{byCommit: map[string]*rerun{}} }

// request registers work that asks for the checks of a commit. done is called once
// they are reported.
func (r *reruns) request(w work, done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := &rerun{done: map[work]func(){w: done}, left: map[string]bool{plan.CheckValidate: true, plan.CheckPlan: true}}
	if earlier := r.byCommit[w.Commit]; earlier != nil {
		for other, done := range earlier.done {
			if other != w {
				now.done[other] = done
			}
		}
	}
	r.byCommit[w.Commit] = now
}

// reporting is called when a check is about to be reported; the function it returns,
// when it was reported.
func (r *reruns) reporting(commit, check string) (reported func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.byCommit[commit]
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if of == nil || r.byCommit[commit] != of { // requested again in the meantime
			return
		}
		if delete(of.left, check); len(of.left) > 0 {
			return
		}
		delete(r.byCommit, commit)
		for _, done := range of.done {
			done()
		}
	}
}

// drop removes the requests for a commit on which nothing is reported any more.
func (r *reruns) drop(commit string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byCommit, commit)
}

// concerns returns webhooks.ErrForeign for a delivery about another repository, and
// webhooks.ErrOwn for one that Berth's own writing caused: it would trigger itself
// forever.
func (c *Config) concerns(d webhooks.Delivery, log *slog.Logger) error {
	ours := c.Forge.FullName()
	for _, e := range d.Events {
		switch {
		case e.Kind == webhooks.Unread: // it names no repository
		case !strings.EqualFold(e.Repo, ours):
			log.Debug("delivery is about another repository", "repository", e.Repo, "ours", ours, "delivery", d.ID)
			return fmt.Errorf("%q: %w", e.Repo, webhooks.ErrForeign)
		case e.Kind != webhooks.Push && c.Forge.IsOwn(d.Sender): // a push counts, whoever made it
			return fmt.Errorf("%s of %s: %w", e.Kind, d.Sender, webhooks.ErrOwn)
		}
	}
	return nil
}
