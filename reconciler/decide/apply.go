package decide

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/authority"
)

// Applied is the result of an Apply.
type Applied struct {
	Decision
	Taken    []schema.PathChange // what comes into force with it, sorted by path
	Left     []schema.Held       // changes of Commit that stay held, sorted by file
	Replaced []string            // paths of which main carries another version, sorted
	Proposal plan.Proposal       // the effect of Taken
	Digest   string              // of Taken and its effect; "" if nothing is taken
}

// Apply decides which changes on in.Base a command brings into force over in.InForce.
// The Decision is zero if nothing is taken.
func (d *Decider) Apply(ctx context.Context, in Input, a Apply) (Applied, error) {
	var out Applied
	next := change{permitted: in.Permitted, today: in.Today, commit: a.Commit, trust: d.o.Authority == nil, authored: map[string]subject{}}
	var err error
	if next.main, err = in.Repo.Snapshot(ctx, in.Base); err != nil {
		return out, err
	}
	if next.previous, err = in.Repo.Snapshot(ctx, in.InForce); err != nil {
		return out, err
	}
	g, err := d.compare(ctx, next)
	if err != nil {
		return out, err
	}
	since, err := in.Repo.Diff(ctx, a.Commit, in.Base)
	if err != nil {
		return out, err
	}
	who := applicant{Apply: a}
	if a.Author == "" && len(a.Signature) > 0 && !next.trust {
		if who.signer, err = d.Permissions().signer(g.before.Desired, a.Payload, a.Signature, in.Today); err != nil {
			return out, err
		}
	}
	for _, c := range a.Touched {
		part := slices.IndexFunc(g.main.Unreadable, func(part string) bool { return strings.HasPrefix(c.Path, part+"/") })
		i := slices.IndexFunc(g.changes, func(o schema.PathChange) bool { return o.Path == c.Path })
		switch {
		case touches(since, c.Path):
			out.Replaced = append(out.Replaced, c.Path)
		case part >= 0:
			out.Left = append(out.Left, schema.Held{File: c.Path, Reason: schema.HeldUnreadable,
				Message: g.main.Unreadable[part] + " cannot be read; repair it first"})
		case i >= 0: // else it is in force
			out.authorise(g, next.authored, who, g.changes[i])
		}
	}
	f, err := d.settle(ctx, &out, next)
	if err == nil && f != nil {
		out.Decision = f.decision(in.Base)
		proposal := in.proposal()
		proposal.Documents = documents(out.Taken, g.before, g.main, movesOf(out.Taken, g.before, g.main, nil))
		proposal.BaseEffective, proposal.HeadEffective, proposal.Placer = d.Evaluate(f.before, f.before, in.Today), f.effective, &d.placer
		out.Proposal = plan.Propose(proposal)
		out.Digest = appliedDigest(out.Proposal.Digest, out.Taken)
	}
	slices.SortFunc(out.Left, func(a, b schema.Held) int { return strings.Compare(a.File, b.File) })
	return out, err
}

// settle decides what is taken, until nothing of it stays held; nil if nothing is
// left. A document that stays held is decided as if no command named it.
func (d *Decider) settle(ctx context.Context, out *Applied, next change) (*forced, error) {
	for len(out.Taken) > 0 {
		f, err := d.enforce(ctx, next)
		if err != nil || !out.leave(f, next.authored) {
			return f, err
		}
	}
	return nil, nil
}

// leave moves held changes from Taken to Left. It returns true if there was any.
func (out *Applied) leave(f *forced, authored map[string]subject) bool {
	n := len(out.Taken)
	out.Taken = slices.DeleteFunc(out.Taken, func(c schema.PathChange) bool {
		i := slices.IndexFunc(f.Held, func(h schema.Held) bool { return h.File == c.Path })
		if _, kept := f.Replace[c.Path]; !kept && i < 0 {
			return false
		}
		h := schema.Held{File: c.Path, Reason: schema.HeldNeeds, Message: "it is held together with another document"}
		if i >= 0 {
			h = f.Held[i]
		}
		out.Left = append(out.Left, h)
		delete(authored, c.Path)
		return true
	})
	return len(out.Taken) < n
}

// appliedDigest identifies the changes and the plan of a command.
func appliedDigest(proposal string, taken []schema.PathChange) string {
	sum := sha256.New()
	fmt.Fprintln(sum, proposal)
	for _, c := range taken {
		fmt.Fprintf(sum, "%q %s %s\n", c.Path, c.From, c.To)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// authorise takes a change that the user of a command may make.
func (out *Applied) authorise(g *guard, authored map[string]subject, who applicant, c schema.PathChange) {
	blob, permitted := g.permitted[c.Path]
	who.seconded = permitted && blob == c.To
	by := subject{
		Actor:  authority.Actor{Login: who.By, Proof: authority.ProofPullRequest, BreakGlass: who.BreakGlass},
		commit: who.Commit, pullRequest: who.PullRequest, applies: &who,
	}
	if why, denied := denial(g.decide(by, c)); denied {
		out.Left = append(out.Left, schema.Held{Key: g.key(c.Path), File: c.Path, Reason: schema.HeldUnauthorised, Message: why})
		return
	}
	authored[c.Path] = by
	out.Taken = append(out.Taken, c)
}

// Needed decides for each permission that the change from one commit to another
// needs, by the rules of the former; empty if no authority is configured.
func (d *Decider) Needed(ctx context.Context, repo Repo, from, to string, by authority.Actor) ([]authority.Decision, error) {
	if d.o.Authority == nil {
		return nil, nil
	}
	touched, err := repo.Diff(ctx, from, to)
	if err != nil {
		return nil, err
	}
	var both change
	if both.previous, err = repo.Snapshot(ctx, from); err != nil {
		return nil, err
	}
	if both.main, err = repo.Snapshot(ctx, to); err != nil {
		return nil, err
	}
	g, err := d.compare(ctx, both)
	if err != nil {
		return nil, err
	}
	var out []authority.Decision
	for _, c := range touched {
		out = append(out, g.decide(subject{Actor: by}, c)...)
	}
	return out, nil
}
