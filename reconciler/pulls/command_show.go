package pulls

import (
	"context"
	"errors"

	"berth/reconciler"
	"berth/reconciler/command"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/policy"
)

// plan plans a pull request again.
func (c *commands) plan(_ context.Context, r *request) (outcome, error) {
	if !r.pull.Open {
		return nothingToDo("the pull request is not open"), nil
	}
	c.planner.publisher.ShowAgain(r.pull.Number)
	c.planAgain(r.pull.Number)
	return done("planned again"), nil
}

// explain shows the values of an instance: as they will be with an open pull
// request merged, else as they are in force.
func (c *commands) explain(ctx context.Context, r *request) (outcome, error) {
	key, _ := command.InstanceKey(r.Args[0])
	out := outcome{reaction: reconciler.Understood, answer: &plan.Answer{Kind: plan.AnswerExplain, Instance: key, Field: r.Args[1]}}
	desired, placed := r.state.Desired, r.state.Placement
	if r.pull.Open {
		merged, err := c.mergedDesired(ctx, r)
		if err != nil {
			return outcome{}, err
		}
		if merged != nil {
			desired = merged
			placed = c.Decider.Place(c.Decider.Evaluate(merged, r.state.Desired, c.today()), c.Status.Units())
		}
	}
	if t := desired.Tenants[key.Tenant]; t != nil {
		e, ok := policy.Explain(desired.Platform, t, key,
			policy.Existing(func(k schema.Key) bool { return r.state.Desired.Instance(k) != nil }), policy.At(c.today()),
			policy.Outside(placed.Outside(key)))
		if ok {
			out.explanation = &e
		}
	}
	return out, nil
}

// mergedDesired is the estate with a pull request merged; nil if it cannot be
// loaded: the checks then name the errors.
func (c *commands) mergedDesired(ctx context.Context, r *request) (*schema.Desired, error) {
	head, err := c.Repo.FetchPull(ctx, r.pull.Number)
	if errors.Is(err, reconciler.ErrNotFound) || errors.Is(err, reconciler.ErrRefused) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	tree, conflicts, err := c.Repo.Merge(ctx, r.state.Main, head)
	if errors.Is(err, reconciler.ErrUnreadable) || len(conflicts) > 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	snap, err := c.Repo.Snapshot(ctx, tree)
	if err != nil {
		return nil, err
	}
	loaded, err := c.Loader.Load(ctx, snap)
	if err != nil {
		return nil, nil
	}
	return loaded.Desired, nil
}
