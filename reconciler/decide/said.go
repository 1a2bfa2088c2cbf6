package decide

import (
	"context"

	"berth/schema"
	"berth/schema/authority"
)

// May says whether somebody may do something that is no change of a document, by
// the roles in force; anybody may where no authority is asked.
func (d *Decider) May(inForce *schema.Desired, login string, p authority.Permission, scope authority.Scope) authority.Decision {
	if d.o.Authority == nil {
		return authority.Decision{Need: authority.Need{Permission: p, Scope: scope}, Allowed: true}
	}
	return authority.May(d.rules(inForce), authority.Actor{Login: login, Proof: authority.ProofPullRequest}, p, scope)
}

// Agrees says whether somebody may say of a change of another that it is meant as
// it is by now: they have the right themselves and, where a policy asks for
// somebody else than its author, are somebody else.
func (d *Decider) Agrees(inForce *schema.Desired, author, login string, n authority.Need) authority.Decision {
	may := d.May(inForce, login, n.Permission, n.Scope)
	if d.o.Authority == nil || !may.Allowed {
		return may
	}
	actor := authority.Actor{Login: author, Approvers: []string{login}, Proof: authority.ProofPullRequest}
	return authority.Decide(d.rules(inForce), actor, []authority.Need{n})[0]
}

// Needed is what a change from one commit to another needs, and whether somebody
// has it by the rules of the former; empty where no authority is asked.
func (d *Decider) Needed(ctx context.Context, repo Repo, from, to string, by authority.Actor) ([]authority.Decision, error) {
	if d.o.Authority == nil {
		return nil, nil
	}
	touched, err := repo.Diff(ctx, from, to)
	if err != nil {
		return nil, err
	}
	old, err := repo.Snapshot(ctx, from)
	if err != nil {
		return nil, err
	}
	tree, err := repo.Snapshot(ctx, to)
	if err != nil {
		return nil, err
	}
	before, err := d.o.Loader.Load(ctx, old)
	if err != nil {
		return nil, err
	}
	main, err := d.o.Loader.Load(ctx, tree)
	if err != nil {
		return nil, err
	}
	var out []authority.Decision
	for _, c := range touched {
		key := main.Key(c.Path)
		if key.IsZero() {
			key = before.Key(c.Path)
		}
		out = append(out, d.decisions(subject{Actor: by}, before.Desired, main.Desired, key, c)...)
	}
	return out, nil
}
