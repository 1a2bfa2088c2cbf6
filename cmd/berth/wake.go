package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"berth/reconciler"
	"berth/webhooks"
)

// work is what a delivery asks for: to look somewhere, and what else it takes. It
// is written into the journal of deliveries.
type work struct {
	Do     reconciler.Task `json:"do"`
	Pull   int             `json:"pull,omitempty"`
	Ref    string          `json:"ref,omitempty"`   // of a group of the merge queue
	Commit string          `json:"again,omitempty"` // whose checks somebody asked to see again
}

// item is where to look.
func (w work) item() reconciler.Item { return reconciler.Item{Do: w.Do, Pull: w.Pull, Ref: w.Ref} }

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
		case webhooks.Remark:
			out = append(out, work{Do: reconciler.TaskRemarks})
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
}

func (w *waker) wake(what work) {
	if what.Commit != "" {
		w.forge.Rerequest(what.Commit) // a completed run cannot be reopened: a new one is made
		w.loop.ShowAgain(what.Pull)
	}
	w.loop.Enqueue(what.item())
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
