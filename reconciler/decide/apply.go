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

// Apply is the command of a user to bring into force what one commit of main
// changed and what is held since as unauthorized or as a blocked deletion. It
// stands in for the missing permission, and for the acknowledgement of a deletion
// in a tenant tree that is valid; what is invalid, denied or waits for a
// reference stays held.
type Apply struct {
	By         string              // login
	BreakGlass string              // the reason for break-glass access; "": none is asked for
	Commit     string              // of main
	Touched    []schema.PathChange // what it changed, sorted by path

	// Author is the login of the user who made the change; "": unknown, as for a
	// push without a signature. Where a policy wants a second person, the author and the
	// user who gives the command are the two.
	Author      string
	PullRequest int // that Commit merged; 0: none
	// Payload and Signature are those of Commit, where Author is not known.
	Payload, Signature []byte
}

// Applied is the result of an Apply.
type Applied struct {
	Decision
	Taken    []schema.PathChange // what comes into force with it, sorted by path
	Left     []plan.Held         // what Commit changed and stays held, sorted by file
	Replaced []string            // paths of which main carries another version, sorted
	Proposal plan.Proposal       // what Taken does
	Digest   string              // of Taken and what it does; "" where nothing is taken
}

// applicant is the user whose command authorises a change.
type applicant struct {
	Apply
	signer   *signature.Signer // signed Commit; nil: unknown
	seconded bool              // the change had its permission: no second person is asked for again
}

// Apply decides what a command brings into force over in.InForce, of what in.Base
// carries. It decides nothing where nothing is taken.
func (d *Decider) Apply(ctx context.Context, in Input, a Apply) (Applied, error) {
	var out Applied
	main, err := in.Repo.Snapshot(ctx, in.Base)
	if err != nil {
		return out, err
	}
	previous, err := in.Repo.Snapshot(ctx, in.InForce)
	if err != nil {
		return out, err
	}
	before, err := d.o.Loader.Load(ctx, previous)
	if err != nil {
		return out, fmt.Errorf("the tree in force: %w", err)
	}
	now, err := d.o.Loader.Load(ctx, main)
	if err != nil {
		return out, fmt.Errorf("the tree of main: %w", err)
	}
	changes, err := d.o.Loader.Compare(ctx, previous, main)
	if err != nil && !errors.Is(err, estate.ErrUnreadable) {
		return out, err
	}
	since, err := in.Repo.Diff(ctx, a.Commit, in.Base)
	if err != nil {
		return out, err
	}
	next := change{
		main: main, previous: previous, permitted: in.Permitted, today: in.Today, commit: a.Commit,
		trust: d.o.Authority == nil, authored: map[string]subject{},
	}
	applicant := applicant{Apply: a}
	if a.Author == "" && len(a.Signature) > 0 && !next.trust {
		if applicant.signer, err = d.signer(ctx, previous, Step{Payload: a.Payload, Signature: a.Signature}, in.Today); err != nil {
			return out, err
		}
	}
	for _, c := range a.Touched {
		part := slices.IndexFunc(now.Unreadable, func(part string) bool { return strings.HasPrefix(c.Path, part+"/") })
		switch {
		case touches(since, c.Path):
			out.Replaced = append(out.Replaced, c.Path)
		case part >= 0:
			out.Left = append(out.Left, plan.Held{File: c.Path, Reason: estate.HeldUnreadable, Message: now.Unreadable[part] + " cannot be read; repair it first"})
		default:
			i := slices.IndexFunc(changes, func(o schema.PathChange) bool { return o.Path == c.Path })
			if i < 0 {
				continue // it is in force
			}
			blob, permitted := in.Permitted[c.Path]
			who := applicant
			who.seconded = permitted && blob == changes[i].To
			by := subject{
				Actor: authority.Actor{Login: a.By, Proof: authority.ProofPullRequest, BreakGlass: a.BreakGlass}, commit: a.Commit, pullRequest: a.PullRequest,
				applies: &who,
			}
			key := now.Key(c.Path)
			if key.IsZero() {
				key = before.Key(c.Path)
			}
			if why, denied := denial(d.decisions(by, before.Desired, now.Desired, key, changes[i])); denied {
				out.Left = append(out.Left, plan.Held{Key: key, File: c.Path, Reason: estate.HeldUnauthorised, Message: why})
				continue
			}
			next.authored[c.Path] = by
			out.Taken = append(out.Taken, changes[i])
		}
	}
	// A document that stays held is decided as if no command named it.
	for len(out.Taken) > 0 {
		f, err := d.enforce(ctx, next)
		if err != nil {
			return out, err
		}
		if out.leave(f, next.authored) {
			continue
		}
		out.Decision = f.decision(in.Base)
		proposal := in.proposal()
		proposal.Documents = documents(out.Taken, before, now)
		proposal.BaseEffective, proposal.HeadEffective, proposal.Placer = d.Evaluate(before.Desired, before.Desired, in.Today), f.effective, &d.placer
		out.Proposal = plan.Propose(proposal)
		sum := sha256.New()
		fmt.Fprintln(sum, out.Proposal.Digest)
		for _, c := range out.Taken {
			fmt.Fprintf(sum, "%q %s %s\n", c.Path, c.From, c.To)
		}
		out.Digest = hex.EncodeToString(sum.Sum(nil))
		break
	}
	slices.SortFunc(out.Left, func(a, b plan.Held) int { return strings.Compare(a.File, b.File) })
	return out, nil
}

// leave moves what stays held from Taken to Left, and says whether there was any.
func (out *Applied) leave(f *forced, authored map[string]subject) bool {
	all, n := held(f.Held), len(out.Taken)
	out.Taken = slices.DeleteFunc(out.Taken, func(c schema.PathChange) bool {
		i := slices.IndexFunc(all, func(h plan.Held) bool { return h.File == c.Path })
		if _, kept := f.Replace[c.Path]; !kept && i < 0 {
			return false
		}
		h := plan.Held{File: c.Path, Reason: estate.HeldNeeds, Message: "it is held together with another document"}
		if i >= 0 {
			h = all[i]
		}
		out.Left = append(out.Left, h)
		delete(authored, c.Path)
		return true
	})
	return len(out.Taken) < n
}

// decision is what a forced tree brings into force, of a commit of main.
func (f *forced) decision(commit string) Decision {
	return Decision{
		Desired: f.Result.Desired, Effective: f.effective, Replace: f.Replace, Held: held(f.Held), Permitted: f.permitted,
		Commit: commit, Verdicts: f.verdicts(commit), Changed: map[schema.Key]string{},
	}
}

// applied says whether the applicant has what a change needs, and whether the
// author is a second person where a policy wants one.
func (d *Decider) applied(s subject, before *schema.Desired, n authority.Need) authority.Decision {
	a, rules := s.applies, d.rules(before)
	alone := authority.Holds(rules, s.Actor, n)
	if !alone.Allowed || a.seconded {
		return alone
	}
	author := cmp.Or(a.Author, subject{signer: a.signer}.in(n.Scope).Login)
	if author == "" || strings.EqualFold(author, a.By) {
		return authority.Decide(rules, s.Actor, []authority.Need{n})[0]
	}
	two := authority.Actor{Login: author, Proof: authority.ProofPullRequest, Approvers: []string{a.By}}
	if alone.BreakGlass { // which no approver has
		two = s.Actor
		two.Approvers = []string{author}
	}
	return authority.Decide(rules, two, []authority.Need{n})[0]
}
