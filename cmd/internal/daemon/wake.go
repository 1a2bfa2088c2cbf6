package daemon

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/webhooks"
)

// work is what a delivery asks for: to look somewhere, and what else it takes. It
// is written into the journal of deliveries.
type work struct {
	Do     reconciler.Task `json:"do"`
	Pull   int             `json:"pull,omitempty"`
	Ref    string          `json:"ref,omitempty"`   // of a group of the merge queue
	Commit string          `json:"again,omitempty"` // whose checks somebody asked to see again: done once they are shown
}

// item is where to look.
func (w work) item() reconciler.Item { return reconciler.Item{Task: w.Do, Pull: w.Pull, Ref: w.Ref} }

// worksOf is what a delivery asks for, each of it once.
func worksOf(d webhooks.Delivery) []work {
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
		case webhooks.MergeGroup: // that it is gone is seen by who looks
			out = append(out, work{Do: reconciler.TaskGroup, Ref: e.Ref})
		default: // authentic, but not understood: look at everything
			out = append(out, work{Do: reconciler.TaskEstate}, work{Do: reconciler.TaskPulls})
		}
	}
	slices.SortFunc(out, func(a, b work) int {
		return cmp.Or(cmp.Compare(a.Do, b.Do), cmp.Compare(a.Pull, b.Pull), cmp.Compare(a.Ref, b.Ref), cmp.Compare(a.Commit, b.Commit))
	})
	return slices.Compact(out)
}

// waker has work looked at.
type waker struct {
	loop interface {
		Enqueue(reconciler.Item)
		ShowAgain(pull int)
	}
	forge interface{ Rerequest(commit string) }
	asked func(work) // that checks are to be shown again; called once whatever is shown is new
}

func (w *waker) wake(what work) {
	if what.Commit != "" {
		w.forge.Rerequest(what.Commit) // a completed run cannot be reopened: a new one is made
		w.asked(what)
		w.loop.ShowAgain(what.Pull)
	}
	w.loop.Enqueue(what.item())
}

// reruns are the checks that somebody asked to see again, until they are shown
// again: only then is the work done, so that no end of a process loses it.
type reruns struct {
	mu sync.Mutex
	of map[string]*rerun // by commit
}

// rerun is of the checks of one commit.
type rerun struct {
	done map[work]func()
	left map[string]bool // the checks that were not shown since
}

// asked takes note that works ask for the checks of a commit, from now on; done is
// called once they are shown.
func (r *reruns) asked(w work, done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := &rerun{done: map[work]func(){w: done}, left: map[string]bool{plan.CheckValidate: true, plan.CheckPlan: true}}
	if was := r.of[w.Commit]; was != nil {
		for other, done := range was.done {
			if other != w {
				now.done[other] = done
			}
		}
	}
	r.of[w.Commit] = now
}

// showing is told that a check is about to be shown; what it returns, that it was.
func (r *reruns) showing(commit, check string) (shown func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.of[commit]
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if of == nil || r.of[commit] != of { // it was asked for once more meanwhile
			return
		}
		if delete(of.left, check); len(of.left) > 0 {
			return
		}
		delete(r.of, commit)
		for _, done := range of.done {
			done()
		}
	}
}

// gone forgets what was asked for a commit on which nothing is shown any more.
func (r *reruns) gone(commit string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, commit)
}

// telling is a forge that tells the deliveries of its daemon what was shown.
type telling struct {
	reconciler.Forge
	d *daemon
}

func (t *telling) Report(ctx context.Context, commit string, c plan.Check) error {
	shown := func() {}
	if t.d.deliveries != nil {
		shown = t.d.deliveries.reruns.showing(commit, c.Name)
	}
	err := t.Forge.Report(ctx, commit, c)
	if err == nil {
		shown()
	}
	return err
}

// concerns is webhooks.ErrForeign for a delivery of another repository, whose
// pull request 7 is not ours, and webhooks.ErrOwn for what came of Berth's own
// writing, by which it would wake itself forever.
func (c *config) concerns(d webhooks.Delivery, log *slog.Logger) error {
	ours := c.GitHub.Owner + "/" + c.GitHub.Repository
	for _, e := range d.Events {
		switch {
		// A delivery that could not be read names no repository.
		case e.Kind == webhooks.Unread:
		case !strings.EqualFold(e.Repo, ours):
			log.Debug("webhook of another repository", "repository", e.Repo, "ours", ours, "delivery", d.ID)
			return fmt.Errorf("%q: %w", e.Repo, webhooks.ErrForeign)
		// Only an App is nobody else: with a person's token, that person may have done
		// it. A push is looked at whoever it is of.
		case e.Kind != webhooks.Push && strings.HasSuffix(c.GitHub.Login, "[bot]") && strings.EqualFold(d.Sender, c.GitHub.Login):
			return fmt.Errorf("%s of %s: %w", e.Kind, d.Sender, webhooks.ErrOwn)
		}
	}
	return nil
}
