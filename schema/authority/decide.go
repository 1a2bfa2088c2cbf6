package authority

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"berth/schema"
)

// Decide says for each need of a change whether a may have it: by the author's
// rights, or by those of somebody whose approval stands on the final head. Where
// a policy in force asks for it, only an approver who is not the author counts.
//
// The glass is the author's alone to break: whoever approves agrees to a change,
// and has asked for nothing.
func Decide(r Rules, a Actor, needs []Need) []Decision {
	ds := make([]Decision, len(needs))
	for i, n := range needs {
		ds[i] = r.decide(a, n, r.approval(a, n))
	}
	return ds
}

// May says whether a may use a permission at s without changing a document, as
// through the API. No approval is asked for.
func May(r Rules, a Actor, p Permission, s Scope) Decision {
	return r.decide(a, Need{Permission: p, Scope: s}, nil)
}

// Holds says whether a itself has the permission that n needs, without the approval
// that a policy may require.
func Holds(r Rules, a Actor, n Need) Decision { return r.decide(a, n, nil) }

// approval is a policy in force at or above a need that asks for one, or nil. It
// holds at its own level too, as else it could be lifted without. Only where
// nobody could approve, the policies of one place do not stand in the way of each
// other's end, nor of their own: who may write them could never change anything
// again. Everything else waits until they are gone, as the rules are those of the
// base.
func (r Rules) approval(a Actor, n Need) *schema.Policy {
	base := orEmpty(r.Base)
	var policies []*schema.Policy
	for _, name := range slices.Sorted(maps.Keys(base.Platform.Policies)) {
		policies = append(policies, base.Platform.Policies[name])
	}
	if t := base.Tenants[n.Scope.Tenant]; t != nil && t.Policy != nil {
		policies = append(policies, t.Policy)
	}
	for _, p := range policies {
		ends := n.EndsApproval && n.Key.Tenant == p.Key.Tenant && (!r.approvable(a, n.Scope) || len(r.holders(n, a.author())) == 0)
		if p.Spec.RequireApproval && !ends { // suspend lifts no limit
			return p
		}
	}
	return nil
}

// approvable says whether anybody could approve a's change at s: a pull request
// can be, and without one there has to be a forge that it could be made at.
func (r Rules) approvable(a Actor, s Scope) bool {
	if a.Proof == ProofPullRequest {
		return true
	}
	t := orEmpty(r.Base).Tenants[s.Tenant]
	return !r.NoForge && (t == nil || t.Tenant == nil || t.Tenant.Spec.Repository == nil)
}

// overrides says whether a breaks the glass over the approval that a policy asks
// for. Only an administrator of berth.yaml does, by a key that it names: whoever
// pushes to the branch of somebody's pull request writes its trailers.
func (r Rules) overrides(a Actor) bool {
	return a.BreakGlass != "" && a.Proof == ProofSignature && slices.Contains(r.AdministratorKeys, a.SigningKey) &&
		slices.ContainsFunc(r.Administrators, func(login string) bool { return sameLogin(login, a.author()) })
}

// decide is the one decision. approval is the policy that asks for one, or nil.
func (r Rules) decide(a Actor, n Need, approval *schema.Policy) Decision {
	switch {
	case find(n.Permission).permission == "":
		return denied(n, "there is no permission "+plain(string(n.Permission)))
	case a.Proof == ProofNone || a.Login == "" && a.ServiceAccount.IsZero():
		return denied(n, "nobody knows who wants this: open a pull request, or sign the commit with a key that a role binding names")
	case a.ServiceAccount.IsZero() && a.Proof == ProofSignature && a.SigningKey == "":
		return denied(n, "it is not known which key signed the commit: sign it with one that a role binding names")
	case !a.ServiceAccount.IsZero() && approval == nil:
		if d := r.account(a, n); d.Allowed || len(a.approvers()) == 0 {
			return d
		}
	}

	key := ""
	if a.Proof == ProofSignature {
		key = a.SigningKey
	}
	author, found, glass := r.best(a.author(), key, n)
	if found && !glass && approval == nil {
		return has(a.author(), author, n)
	}
	agreed := "" // the first approver with the right that they hold only by breaking the glass
	for _, who := range a.approvers() {
		switch m, found, glass := r.best(who, "", n); {
		case found && !glass:
			return has(who, m, n)
		case found && agreed == "":
			agreed = who
		}
	}
	switch {
	case found && approval != nil && r.overrides(a):
		return broken(a, author, n, fmt.Sprintf(", without the approval that %s (%s) wants", approval.Key, approval.File))
	case found && glass && approval == nil && a.BreakGlass != "":
		return broken(a, author, n, "")
	case found && glass && approval != nil && a.BreakGlass != "" && agreed != "":
		return broken(a, author, n, ", as "+plain(agreed)+" approves")
	case found && glass && approval == nil:
		return denied(n, fmt.Sprintf("%s has it there only by breaking the glass: add the trailer `Break-Glass: reason` to the commit, which is told and audited, or %s", plain(a.author()), r.ask(n, "")))
	case agreed != "":
		return denied(n, fmt.Sprintf("%s has it there only by breaking the glass, which no approval does: somebody of the platform has to make the change in a pull request of their own with the trailer `Break-Glass: reason`, or %s", plain(agreed), r.ask(n, a.author())))
	case approval != nil && !r.approvable(a, n.Scope):
		return denied(n, fmt.Sprintf("%s (%s) wants the approval of somebody other than the author, which nobody can give where a commit counts by its signature alone: take require_approval out of the policy, or have an administrator of berth.yaml sign the change with the trailer `Break-Glass: reason`", approval.Key, approval.File))
	case approval != nil:
		return denied(n, fmt.Sprintf("%s (%s) wants the approval of somebody other than the author: %s", approval.Key, approval.File, r.ask(n, a.author())))
	}
	if _, found, _ := r.best(a.author(), "", n); found {
		return denied(n, fmt.Sprintf("the key that signed the commit is not named by the role binding that gives it to %s: add it to signing_keys there, or %s", plain(a.author()), r.ask(n, a.author())))
	}
	return denied(n, fmt.Sprintf("%s does not have it in %s: %s", plain(cmp.Or(a.author(), a.ServiceAccount.String())), n.Scope, r.ask(n, "")))
}

// has is that who has what n needs, by the entry m.
func has(who string, m member, n Need) Decision {
	return Decision{Need: n, Allowed: true, By: who, Role: m.Role, Source: m.at(), Reason: fmt.Sprintf("%s has it in %s as %s", plain(who), n.Scope, m.Role)}
}

// broken is that the author breaks the glass, by the entry m.
func broken(a Actor, m member, n Need, how string) Decision {
	return Decision{
		Need: n, Allowed: true, By: a.author(), Role: m.Role, Source: m.at(), BreakGlass: true,
		Reason: fmt.Sprintf("%s broke the glass as %s%s, for this reason: %s", plain(a.author()), m.Role, how, quote(a.BreakGlass)),
	}
}

// account decides for a service account: what its scopes name, the table gives
// it, and its project (or tenant, for shared runtimes) has bound it to; nowhere
// else, and with nobody's glass.
func (r Rules) account(a Actor, n Need) Decision {
	k := a.ServiceAccount
	sa, roles := r.serviceAccount(k)
	where := Scope{k.Tenant, k.Project}
	cell := find(n.Permission).cell(serviceAccount)
	no := func(format string, args ...any) Decision {
		return denied(n, k.String()+" "+fmt.Sprintf(format, args...))
	}
	bound := -1
	if roles != nil && !roles.Suspend {
		bound = slices.IndexFunc(roles.Spec.Members, func(m schema.RoleMember) bool {
			return m.ServiceAccount == k.Name && m.Role == serviceAccount
		})
	}
	switch {
	case sa == nil:
		return no("is not in force: declare it, or use one that is")
	case sa.Suspend || len(sa.Spec.PublicKeys) == 0:
		return no("is suspended or has no key: it is nobody until that is mended in %s", sa.File)
	case n.Scope != where:
		return no("acts in %s only, never in %s: use an account of that place", where, n.Scope)
	case k.Project == "" && !ofSharedRuntimes(n.Permission):
		return no("is a tenant's, for shared runtimes only: use an account of a project")
	case cell == Deny || !outranks(serviceAccount, n.AtLeast):
		return no("cannot have it, as no service account can: %s", r.ask(n, ""))
	case bound < 0:
		return no("has no role in %s: add it with the role service_account to the role binding there", where)
	case !slices.Contains(sa.Spec.Scopes, string(n.Permission)):
		return no("does not name it in its scopes: add %s to them in %s", n.Permission, sa.File)
	case a.Proof == ProofToken && (cell == Listed || a.Endpoint != "") && !slices.Contains(sa.Spec.AllowedEndpoints, a.Endpoint):
		return no("may not call %s: add that to allowed_endpoints in %s", plain(a.Endpoint), sa.File)
	}
	return Decision{
		Need: n, Allowed: true, By: k.String(), Role: serviceAccount, Source: roles.At(fmt.Sprintf("spec.members[%d]", bound)),
		Reason: fmt.Sprintf("%s has it by its scopes", k),
	}
}

// ofSharedRuntimes says whether a permission means something at a tenant's
// shared runtime: itself, its queue and its nodes.
func ofSharedRuntimes(p Permission) bool {
	return strings.HasPrefix(string(p), "shared_runtimes.") || strings.HasPrefix(string(p), "scheduler.")
}

// serviceAccount is the account of k and the binding beside it, nil where there
// is none in force.
func (r Rules) serviceAccount(k schema.Key) (*schema.ServiceAccount, *schema.RoleBinding) {
	base := orEmpty(r.Base)
	if k.Kind != schema.KindServiceAccount || base.Header(k) == nil {
		return nil, nil
	}
	t := base.Tenants[k.Tenant]
	if k.Project == "" {
		return t.ServiceAccounts[k.Name], t.Roles
	}
	p := t.Projects[k.Project]
	return p.ServiceAccounts[k.Name], p.Roles
}

// Name is the service account or the login; "" if the actor is unknown.
func (a Actor) Name() string {
	if !a.ServiceAccount.IsZero() {
		return a.ServiceAccount.String()
	}
	return a.Login
}

// author is the login of who wrote it; "" for a service account.
func (a Actor) author() string {
	if !a.ServiceAccount.IsZero() {
		return ""
	}
	return a.Login
}

// approvers are the people other than the author who agree, which only a forge
// can say.
func (a Actor) approvers() []string {
	if a.Proof != ProofPullRequest {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(a.Approvers), func(login string) bool {
		return login == "" || sameLogin(login, a.author())
	})
}

func denied(n Need, reason string) Decision { return Decision{Need: n, Reason: reason} }

// ask says whom to ask for n instead; not except.
func (r Rules) ask(n Need, except string) string {
	logins := r.holders(n, except)
	if len(logins) == 0 {
		return "nobody else has it there yet, so ask an administrator of the platform"
	}
	as := ""
	if n.AtLeast != "" {
		as = " as " + n.AtLeast + " or above"
	}
	return fmt.Sprintf("ask somebody with %s in %s%s: %s", n.Permission, n.Scope, as, strings.Join(logins[:min(len(logins), 3)], ", "))
}

// String is how people read a scope: "the platform", "physics", "physics.lattice".
func (s Scope) String() string {
	switch {
	case s == Scope{}:
		return "the platform"
	case s.Project == "":
		return s.Tenant
	}
	return s.Tenant + "." + s.Project
}

// plain is text from outside as it is where it is harmless, else quoted.
func plain(s string) string {
	for _, c := range s {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("-._[]/ ", c)) {
			return quote(s)
		}
	}
	return s[:min(len(s), maxText)]
}

// maxText is the most bytes of one text from outside in a message.
const maxText = 200

func quote(s string) string { return strconv.Quote(s[:min(len(s), maxText)]) }
