package main

import (
	"fmt"
	"log/slog"
	"strings"

	"berth/reconciler"
	"berth/webhooks"
)

// waker turns deliveries into what the loop looks at.
type waker struct {
	repository string // "owner/name"; the deliveries of others wake nobody
	loop       interface {
		Enqueue(reconciler.Item)
		ShowAgain(pull int)
	}
	forge interface{ Rerequest(commit string) }
	log   *slog.Logger
}

// ours is webhooks.ErrForeign for a delivery of another repository: its pull
// request 7 is not ours.
func (w *waker) ours(e webhooks.Event) error {
	// A delivery that could not be read names no repository.
	if e.Kind != webhooks.Unread && !strings.EqualFold(e.Repo, w.repository) {
		w.log.Debug("webhook of another repository", "repository", e.Repo, "ours", w.repository, "delivery", e.Delivery)
		return fmt.Errorf("%q: %w", e.Repo, webhooks.ErrForeign)
	}
	return nil
}

// wake turns a delivery into the items it hints at.
func (w *waker) wake(e webhooks.Event) {
	switch e.Kind {
	case webhooks.Push:
		w.loop.Enqueue(reconciler.Item{Do: reconciler.TaskEstate})
	case webhooks.PullRequest, webhooks.Rerequest:
		if e.Kind == webhooks.Rerequest {
			w.forge.Rerequest(e.Commit) // a completed run cannot be reopened: a new one is made
			w.loop.ShowAgain(e.Number)
		}
		if e.Number > 0 {
			w.loop.Enqueue(reconciler.Item{Do: reconciler.TaskPull, Pull: e.Number})
		} else {
			w.loop.Enqueue(reconciler.Item{Do: reconciler.TaskPulls})
		}
	default: // authentic, but not understood: look at everything
		w.loop.Enqueue(reconciler.Item{Do: reconciler.TaskEstate})
		w.loop.Enqueue(reconciler.Item{Do: reconciler.TaskPulls})
	}
}
