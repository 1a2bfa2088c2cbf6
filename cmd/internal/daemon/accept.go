package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"berth/reconciler"
	"berth/reconciler/gitrepo"
)

// accepting is a repository whose operator accepts a rewritten history: at one
// commit of main, at the start of the daemon, once. What is rewritten later, or
// to another commit, is refused as ever.
type accepting struct {
	*gitrepo.Composed
	commit string
	log    *slog.Logger
	over   atomic.Bool
}

// Fetch fetches, and where main was rewritten to the accepted commit takes it
// over.
func (a *accepting) Fetch(ctx context.Context) (reconciler.Tips, error) {
	tips, refused := a.Composed.Fetch(ctx)
	switch {
	case a.over.Load():
		return tips, refused
	case refused == nil:
		a.over.Store(true)
		a.log.Info("nothing was rewritten: take repository.accept out of the configuration", "accept", a.commit)
		return tips, nil
	case !errors.Is(refused, reconciler.ErrRewritten):
		return tips, refused // the remote is down, say: next time
	}
	accepted, err := a.Accept(ctx, a.commit)
	if err != nil {
		// Not wrapped: that it was rewritten is what the loop must know.
		return tips, fmt.Errorf("%w; repository.accept did not help: %v", refused, err)
	}
	a.over.Store(true)
	a.log.Warn("the operator's configuration accepted a rewritten history: take repository.accept out again",
		"main", accepted.Main, "main_before", tips.Main, "in_force", accepted.InForce, "in_force_before", tips.InForce, "refused_because", refused)
	return accepted, nil
}
