package localplan

import (
	"context"
	"fmt"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
)

// recorded is the state that Berth's branches in the repository describe at the base.
type recorded struct {
	inForce   string            // commit of berth/in-force; "": all of the base is assumed to be in force
	permitted map[string]string // as in decide.Input
	use       map[string]int64  // GPU seconds of the month, by project
	memory    *plan.Memory      // nil: unknown, and the base is assumed to run as declared
	things    map[schema.Key]*plan.ThingStatus
	status    string // commit of berth/status that it was read from
	note      string // why Berth's plan may differ
}

// recorded reads Berth's branches as fetched from origin, and then the repository's
// own. Berth plans against the commit that it decided, so the base may be the tip of
// any branch.
func (p *planner) recorded(ctx context.Context) (recorded, error) {
	own, origin, err := p.repo.Sides()
	if err != nil {
		return recorded{}, err
	}
	fetched, err := p.recordedBy(ctx, origin)
	if err != nil || fetched.note == "" || own.InForce == origin.InForce && own.Status == origin.Status {
		return fetched, err
	}
	if r, err := p.recordedBy(ctx, own); err != nil || r.note == "" {
		return r, err
	}
	return fetched, nil
}

// recordedBy is recorded for one of the two.
func (p *planner) recordedBy(ctx context.Context, tips reconciler.Tips) (r recorded, err error) {
	status, err := p.repo.ReadStatus(ctx, tips.Status)
	if err != nil {
		return r, fmt.Errorf("%s: %w", reconciler.BranchStatus, err)
	}
	r.things, r.status = status.Things, tips.Status
	if tips.Status != "" {
		r.memory = &status.Units
		if r.use, err = p.repo.GPUSeconds(ctx, tips.Status, p.in.Today[:len("2006-01")]); err != nil {
			return r, fmt.Errorf("%s: %w", reconciler.BranchStatus, err)
		}
	}
	const otherwise = "so all of the base is assumed to be in force and Berth may plan differently; "
	if tips.InForce == "" {
		if status.Revision.InForce != "" {
			r.note = fmt.Sprintf("Branch %s is missing beside %s, %sfetch it too.", reconciler.BranchInForce, reconciler.BranchStatus,
				otherwise)
		}
		return r, nil
	}
	inForce, err := p.repo.ReadInForce(ctx, tips.InForce)
	if err != nil {
		return r, fmt.Errorf("%s: %w", reconciler.BranchInForce, err)
	}
	decided := inForce.Commit
	if status.Revision.InForce == tips.InForce && status.Revision.Commit != "" {
		decided = status.Revision.Commit // a commit that changes nothing in force is recorded there only
	}
	if base := p.in.Base; base != inForce.Commit && base != decided {
		r.note = fmt.Sprintf("The base is not %.10s, the commit that Berth decided last, %sfetch again, or give --base %.10[1]s.", decided,
			otherwise)
		return r, nil
	}
	r.inForce, r.permitted = tips.InForce, inForce.Permitted
	return r, nil
}
