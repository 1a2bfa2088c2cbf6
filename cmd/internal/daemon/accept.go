package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"berth/reconciler"
	"berth/reconciler/gitrepo/composed"
)

// acceptingRepo is a repository whose operator accepts a rewritten history: at one
// commit of main, when the daemon starts, once. Every other rewrite is refused.
type acceptingRepo struct {
	*composed.Composed
	commit string
	log    *slog.Logger
	over   atomic.Bool
}

// Fetch fetches, and accepts the rewrite of main to the commit.
func (a *acceptingRepo) Fetch(ctx context.Context) (reconciler.Tips, error) {
	tips, refused := a.Composed.Fetch(ctx)
	switch {
	case a.over.Load():
		return tips, refused
	case refused == nil:
		a.over.Store(true)
		a.log.Info("history not rewritten; remove repository.accept from the configuration", "accept", a.commit)
		return tips, nil
	case !errors.Is(refused, reconciler.ErrRewritten):
		return tips, refused // for example, the remote is down: the next fetch tries again
	}
	accepted, err := a.Accept(ctx, a.commit)
	if err != nil {
		// Not wrapped: the loop must see ErrRewritten alone.
		return tips, fmt.Errorf("%w; repository.accept did not help: %v", refused, err)
	}
	a.over.Store(true)
	a.log.Warn("rewritten history accepted by the configuration; remove repository.accept",
		"main", accepted.Main, "main_before", tips.Main, "in_force", accepted.InForce, "in_force_before", tips.InForce, "refused_because",
		refused)
	return accepted, nil
}
