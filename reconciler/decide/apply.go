package decide

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/authority"
	"berth/schema/estate"
	"berth/schema/signature"
)

// Apply is the command of a user to bring into force the changes of one commit of main
// that are held as unauthorized or as a blocked deletion. It replaces the missing
// permission, and the acknowledgement of a deletion in a valid tenant tree. Other
// reasons still hold a document.
type Apply struct {
	By         string              // login
	BreakGlass string              // the reason for break-glass access; "": none is asked for
	Commit     string              // of main
	Touched    []schema.PathChange // changes of Commit, sorted by path

	// Author is the login of the author of the change; "": unknown, as for a push
	// without a signature. Where a policy wants two persons, they are the author and
	// the user who gives the command.
	Author      string
	PullRequest int // that Commit merged; 0: none
	// Payload and Signature are those of Commit, if Author is unknown.
	Payload, Signature []byte
}

// Applied is the result of an Apply.
type Applied struct {
	Decision
	Taken    []schema.PathChange // what comes into force with it, sorted by path
	Left     []schema.Held       // changes of Commit that stay held, sorted by file
	Replaced []string            // paths of which main carries another version, sorted
	Proposal plan.Proposal       // the effect of Taken
	Digest   string              // of Taken and its effect; "" if nothing is taken
}

// applicant is the user whose command authorizes a change.
type applicant struct {
	Apply
	signer   *signature.Signer // of Commit; nil: unknown
	seconded bool              // the change had its permission: no second person is needed
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
	before, err := d.o.Loader.Load(ctx, next.previous)
	if err != nil {
		return out, fmt.Errorf("the tree in force: %w", err)
	}
	now, err := d.o.Loader.Load(ctx, next.main)
	if err != nil {
		return out, fmt.Errorf("the tree of main: %w", err)
	}
	changes, err := d.o.Loader.Compare(ctx, next.previous, next.main)
	if err != nil && !errors.Is(err, estate.ErrUnreadable) {
		return out, err
	}
	since, err := in.Repo.Diff(ctx, a.Commit, in.Base)
	if err != nil {
		return out, err
	}
	who := applicant{Apply: a}
	if a.Author == "" && len(a.Signature) > 0 && !next.trust {
		if who.signer, err = d.signer(before.Desired, a.Payload, a.Signature, in.Today); err != nil {
			return out, err
		}
	}
	for _, c := range a.Touched {
		part := slices.IndexFunc(now.Unreadable, func(part string) bool { return strings.HasPrefix(c.Path, part+"/") })
		i := slices.IndexFunc(changes, func(o schema.PathChange) bool { return o.Path == c.Path })
		switch {
		case touches(since, c.Path):
			out.Replaced = append(out.Replaced, c.Path)
		case part >= 0:
			out.Left = append(out.Left, schema.Held{File: c.Path, Reason: schema.HeldUnreadable, Message: now.Unreadable[part] + " cannot be read; repair it first"})
		case i >= 0: // else it is in force
			out.authorise(d, &next, who, changes[i], before, now)
		}
	}
	f, err := d.settle(ctx, &out, next)
	if err == nil && f != nil {
		out.Decision = f.decision(in.Base)
		proposal := in.proposal()
		proposal.Documents = documents(out.Taken, before, now)
		proposal.BaseEffective, proposal.HeadEffective, proposal.Placer = d.Evaluate(before.Desired, before.Desired, in.Today), f.effective, &d.placer
		out.Proposal = plan.Propose(proposal)
		out.Digest = appliedDigest(out.Proposal.Digest, out.Taken)
	}
	slices.SortFunc(out.Left, func(a, b schema.Held) int { return strings.Compare(a.File, b.File) })
	return out, err
}

// authorise takes a change that the user of a command may make.
func (out *Applied) authorise(d *Decider, next *change, who applicant, c schema.PathChange, before, now *estate.Result) {
	blob, permitted := next.permitted[c.Path]
	who.seconded = permitted && blob == c.To
	by := subject{
		Actor:  authority.Actor{Login: who.By, Proof: authority.ProofPullRequest, BreakGlass: who.BreakGlass},
		commit: who.Commit, pullRequest: who.PullRequest, applies: &who,
	}
	key := cmp.Or(now.Key(c.Path), before.Key(c.Path))
	if why, denied := denial(d.decisions(by, before.Desired, now.Desired, key, c)); denied {
		out.Left = append(out.Left, schema.Held{Key: key, File: c.Path, Reason: schema.HeldUnauthorised, Message: why})
		return
	}
	next.authored[c.Path] = by
	out.Taken = append(out.Taken, c)
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
