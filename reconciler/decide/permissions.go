package decide

import (
	"cmp"
	"strings"
	"time"

	"berth/schema"
	"berth/schema/authority"
	"berth/schema/signature"
)

// Permissions holds the permissions of users: those of the role bindings in force, and of the administrators of berth.yaml.
type Permissions struct{ authority *Authority }

// Permissions returns the permissions of the estate.
func (d *Decider) Permissions() Permissions { return Permissions{d.o.Authority} }

// rules are the rules of the estate in force before a change.
func (ps Permissions) rules(base *schema.Desired) authority.Rules {
	return authority.Rules{
		Base: base, Administrators: ps.authority.Administrators, AdministratorKeys: ps.authority.AdministratorKeys,
		NoForge: ps.authority.NoForge,
	}
}

// decisions are those about the change of one document; empty if no authority is
// configured.
func (ps Permissions) decisions(
	s subject, before, main *schema.Desired, key schema.Key, c schema.PathChange,
) []authority.Decision {
	var out []authority.Decision
	if ps.authority == nil {
		return nil
	}
	for _, n := range authority.Needs(before, main, key, c) {
		if s.applies != nil {
			out = append(out, ps.applied(s, before, n))
			continue
		}
		out = append(out, authority.Decide(ps.rules(before), s.in(n.Scope), []authority.Need{n})...)
	}
	return out
}

// applied decides whether the user of an apply command has a permission, and
// whether the author is a second person where a policy wants one.
func (ps Permissions) applied(s subject, before *schema.Desired, n authority.Need) authority.Decision {
	a, rules := s.applies, ps.rules(before)
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

// denial is the text of the first denied decision.
func denial(ds []authority.Decision) (string, bool) {
	for _, d := range ds {
		if !d.Allowed {
			return d.Why + ": " + d.Message(), true
		}
	}
	return "", false
}

// may returns true if a subject has a permission; every subject has it if no authority
// is configured.
func (ps Permissions) may(s subject, base *schema.Desired, p authority.Permission, scope authority.Scope) bool {
	return ps.authority == nil || authority.May(ps.rules(base), s.in(scope), p, scope).Allowed
}

// May decides whether a user may take an action without a document change, by the
// roles in force.
func (ps Permissions) May(inForce *schema.Desired, login string, p authority.Permission, scope authority.Scope) authority.Decision {
	if ps.authority == nil {
		return authority.Decision{Need: authority.Need{Permission: p, Scope: scope}, Allowed: true}
	}
	return authority.May(ps.rules(inForce), authority.Actor{Login: login, Proof: authority.ProofPullRequest}, p, scope)
}

// Agrees decides whether a user may approve the present plan of an author's change:
// the user has the permission and, where a policy wants two persons, is another one.
func (ps Permissions) Agrees(inForce *schema.Desired, author, login string, n authority.Need) authority.Decision {
	may := ps.May(inForce, login, n.Permission, n.Scope)
	if ps.authority == nil || !may.Allowed {
		return may
	}
	actor := authority.Actor{Login: author, Approvers: []string{login}, Proof: authority.ProofPullRequest}
	return authority.Decide(ps.rules(inForce), actor, []authority.Need{n})[0]
}

// signer is the signer of a commit, by the keys in force before it and until the end
// of the day; nil: unknown.
func (ps Permissions) signer(before *schema.Desired, payload, signed []byte, today string) (*signature.Signer, error) {
	day, err := time.Parse(time.DateOnly, today)
	if err != nil {
		return nil, err
	}
	who, err := signature.Keys(ps.rules(before)).Signer(payload, signed, day.Add(24*time.Hour))
	if err != nil {
		return nil, nil // it proves nobody
	}
	return &who, nil
}

// Maker is the author of a commit, as its pull request or its signature proves it
// for a scope; the zero Actor if neither does.
func (ps Permissions) Maker(rules *schema.Desired, s Step, scope authority.Scope, today string) authority.Actor {
	by := subject{Actor: s.By}
	if s.By.Proof == authority.ProofNone && len(s.Signature) > 0 && ps.authority != nil {
		by.signer, _ = ps.signer(rules, s.Payload, s.Signature, today) // an invalid day proves nobody
	}
	if a := by.in(scope); a.Proof != authority.ProofNone {
		return a
	}
	return authority.Actor{}
}
