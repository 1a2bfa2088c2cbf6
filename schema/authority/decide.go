package authority

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"berth/schema"
)

// Decide decides each need of a change: by the author's permissions, or by those of an
// approver of the final head. If a policy in force requires approval, only an approver
// other than the author counts.
//
// Only the author can use break-glass access. An approver never gets it.
func Decide(r Rules, a Actor, needs []Need) []Decision {
	ds := make([]Decision, len(needs))
	for i, n := range needs {
		ds[i] = r.decide(a, n, r.approval(a, n))
	}
	return ds
}

// May decides whether a has a permission at s without changing a document, as through
// the API. No approval is required.
func May(r Rules, a Actor, p Permission, s Scope) Decision {
	return r.decide(a, Need{Permission: p, Scope: s}, nil)
}

// Holds decides whether a itself has the permission that n needs, without the
// approval that a policy may require.
func Holds(r Rules, a Actor, n Need) Decision { return r.decide(a, n, nil) }

// approval returns the policy in force at or above a need that requires approval,
// or nil. The policy covers its own level too, otherwise it could be removed
// without approval. If nobody can approve, a change that ends require_approval in
// the same place is exempt; otherwise the place could never be changed again.
func (r Rules) approval(a Actor, n Need) *schema.Policy {
	base := r.Base.OrEmpty()
	var policies []*schema.Policy
	for _, p := range schema.Sorted(base.Platform.Policies) {
		policies = append(policies, p)
	}
	if t := base.Tenants[n.Scope.Tenant]; t != nil && t.Policy != nil {
		policies = append(policies, t.Policy)
	}
	for _, p := range policies {
		exempt := n.EndsApproval && n.Key.Tenant == p.Key.Tenant && (!r.approvable(a, n.Scope) || len(r.holders(n, a.author())) == 0)
		if p.Spec.RequireApproval && !exempt { // a suspended policy still limits
			return p
		}
	}
	return nil
}

// approvable reports whether a user could approve a's change at s: a change in a pull
// request, or one that a forge could accept as a pull request.
func (r Rules) approvable(a Actor, s Scope) bool {
	if a.Proof == ProofPullRequest {
		return true
	}
	t := r.Base.OrEmpty().Tenants[s.Tenant]
	return !r.NoForge && (t == nil || t.Tenant == nil || t.Tenant.Spec.Repository == nil)
}

// overrides reports whether a uses break-glass access over a required approval. This
// requires an administrator of berth.yaml with a signing key from there, because any user
// with push access to a pull request's branch can write trailers.
func (r Rules) overrides(a Actor) bool {
	return a.BreakGlass != "" && a.Proof == ProofSignature && slices.Contains(r.AdministratorKeys, a.SigningKey) &&
		slices.ContainsFunc(r.Administrators, func(login string) bool { return sameLogin(login, a.author()) })
}

// decide makes the decision for one need. approval is the policy that requires
// approval, or nil.
func (r Rules) decide(a Actor, n Need, approval *schema.Policy) Decision {
	if reason, next := unknown(a, n); reason != "" {
		return denied(n, reason, next)
	}
	if !a.ServiceAccount.IsZero() && approval == nil {
		if d := r.account(a, n); d.Allowed || len(a.approvers()) == 0 {
			return d
		}
	}
	author, found, glass := r.best(a.author(), a.signingKey(), n)
	if found && !glass && approval == nil {
		return has(a.author(), author, n)
	}
	approver, entry, glassApprover := r.approver(a, n)
	if approver != "" {
		return has(approver, entry, n)
	}
	if found && approval != nil && r.overrides(a) {
		return breakGlass(a, author, n, fmt.Sprintf(", without the approval that %s (%s) requires", approval.Key, approval.File))
	}
	if how, ok := a.glassUse(approval, glassApprover); glass && ok {
		return breakGlass(a, author, n, how)
	}
	return r.denial(a, n, approval, glass, glassApprover)
}

// unknown returns the reason why no role can decide, and what to do: there is no such permission, or nobody is known to
// ask for it. "": roles decide.
func unknown(a Actor, n Need) (reason, next string) {
	switch {
	case find(n.Permission).permission == "":
		return "there is no permission " + plain(string(n.Permission)), ""
	case a.Proof == ProofNone || a.Login == "" && a.ServiceAccount.IsZero():
		return "the author is unknown", "open a pull request, or sign the commit with a key that a role binding names"
	case a.ServiceAccount.IsZero() && a.Proof == ProofSignature && a.SigningKey == "":
		return "the key that signed the commit is unknown", "sign it with a key that a role binding names"
	}
	return "", ""
}

// signingKey returns the key that proves the author; "": something else does.
func (a Actor) signingKey() string {
	if a.Proof != ProofSignature {
		return ""
	}
	return a.SigningKey
}

// approver returns the first approver who has what n needs, with the entry for it. If there is none, glassApprover is
// the first who has it only as break-glass access.
func (r Rules) approver(a Actor, n Need) (who string, entry member, glassApprover string) {
	for _, who := range a.approvers() {
		switch m, found, glass := r.best(who, "", n); {
		case found && !glass:
			return who, m, ""
		case found && glassApprover == "":
			glassApprover = who
		}
	}
	return "", member{}, glassApprover
}

// glassUse returns how break-glass access of the author gives a permission, for the reason of the decision; false: it does
// not.
func (a Actor) glassUse(approval *schema.Policy, glassApprover string) (how string, ok bool) {
	switch {
	case a.BreakGlass == "":
		return "", false
	case approval == nil:
		return "", true
	case glassApprover != "":
		return ", approved by " + plain(glassApprover), true
	}
	return "", false
}

// denial returns the denial of n with its reason. glass: the author has the permission only as break-glass access.
func (r Rules) denial(a Actor, n Need, approval *schema.Policy, glass bool, glassApprover string) Decision {
	switch {
	case glass && approval == nil:
		return denied(n, fmt.Sprintf("%s has %s in %s only as break-glass access", plain(a.author()), n.Permission, n.Scope),
			"add the trailer `Break-Glass: reason` to the commit, which is shown and audited, or "+r.ask(n, ""))
	case glassApprover != "":
		return denied(n, fmt.Sprintf("the approver %s has %s in %s only as break-glass access, which an approval never gives",
			plain(glassApprover), n.Permission, n.Scope),
			"a platform administrator makes the change in a pull request of their own with the trailer `Break-Glass: reason`, or "+
				r.ask(n, a.author()))
	case approval != nil && !r.approvable(a, n.Scope):
		return denied(n, fmt.Sprintf("%s (%s) requires the approval of another user, which a commit without a pull request cannot get",
			approval.Key, approval.File),
			"remove require_approval from the policy, or an administrator of berth.yaml signs the change with the trailer `Break-Glass: "+
				"reason`")
	case approval != nil:
		return r.askable(n, fmt.Sprintf("%s (%s) requires the approval of another user than the author", approval.Key, approval.File),
			a.author())
	}
	if _, found, _ := r.best(a.author(), "", n); found {
		return denied(n, fmt.Sprintf("the role binding of %s does not name the key that signed the commit", plain(a.author())),
			"add the key to signing_keys there, or "+r.ask(n, a.author()))
	}
	return r.askable(n, fmt.Sprintf("%s lacks %s in %s%s", plain(cmp.Or(a.author(), a.ServiceAccount.String())), n.Permission, n.Scope,
		n.atLeast()), "")
}

// atLeast describes the lowest role that n accepts.
func (n Need) atLeast() string {
	if n.AtLeast == "" {
		return ""
	}
	return " as " + n.AtLeast + " or above"
}

// has allows n by the entry m of who.
func has(who string, m member, n Need) Decision {
	return Decision{Need: n, Allowed: true, By: who, Role: m.Role, Source: m.at(),
		Reason: fmt.Sprintf("%s is %s in %s", plain(who), m.Role, n.Scope)}
}

// breakGlass allows n by break-glass access of the author, by the entry m.
func breakGlass(a Actor, m member, n Need, how string) Decision {
	return Decision{
		Need: n, Allowed: true, By: a.author(), Role: m.Role, Source: m.at(), BreakGlass: true,
		Reason: fmt.Sprintf("%s used break-glass access as %s%s; reason: %s", plain(a.author()), m.Role, how, quote(a.BreakGlass)),
	}
}

// account decides for a service account. It has a permission if its scopes name it, the
// table allows it, the binding of its project (or tenant, for shared runtimes) names the
// account, and the Apps whose units it operates require it. It has none elsewhere, and
// never break-glass access.
func (r Rules) account(a Actor, n Need) Decision {
	k := a.ServiceAccount
	sa, roles := r.serviceAccount(k)
	where := Scope{k.Tenant, k.Project}
	cell := find(n.Permission).cell(serviceAccount)
	no := func(reason, next string) Decision { return denied(n, k.String()+" "+reason, next) }
	bound := boundIn(roles, k.Name)
	switch {
	case sa == nil:
		return no("is not in force", "declare it, or use another account")
	case sa.Suspend || len(sa.Spec.PublicKeys) == 0:
		return no("is suspended or has no key", "resume it or add a key in "+sa.File)
	case n.Scope != where:
		return no(fmt.Sprintf("acts in %s only, not in %s", where, n.Scope), "use an account of that place")
	case k.Project == "" && !ofSharedRuntimes(n.Permission):
		return no("belongs to a tenant and acts on shared runtimes only", "use an account of a project")
	case cell == Deny || !outranks(serviceAccount, n.AtLeast):
		return r.askable(n, fmt.Sprintf("%s lacks %s, which no service account can have", k, n.Permission), "")
	case bound < 0:
		return no(fmt.Sprintf("has no role in %s", where), "add it with the role service_account to the role binding there")
	case !slices.Contains(sa.Spec.Scopes, string(n.Permission)):
		return no(fmt.Sprintf("does not have %s in its scopes", n.Permission), "add it to the scopes in "+sa.File)
	case !a.mayCall(sa, cell):
		return no("may not call "+plain(a.Endpoint), "add that to allowed_endpoints in "+sa.File)
	}
	if d, beyond := r.beyondApps(a, n); beyond {
		return d
	}
	return Decision{
		Need: n, Allowed: true, By: k.String(), Role: serviceAccount, Source: roles.At(fmt.Sprintf("spec.members[%d]", bound)),
		Reason: fmt.Sprintf("the scopes of %s name it", k),
	}
}

// boundIn returns the index of the entry of a service account in roles, which may be nil; -1: it has none.
func boundIn(roles *schema.RoleBinding, account string) int {
	if roles == nil || roles.Suspend {
		return -1
	}
	return slices.IndexFunc(roles.Spec.Members, func(m schema.RoleMember) bool {
		return m.ServiceAccount == account && m.Role == serviceAccount
	})
}

// mayCall reports whether an account may call the endpoint of a request. A token is good for the endpoints that the account lists. cell is
// that of the permission in the table: without an endpoint, a token is good for any permission that needs none in the list.
func (a Actor) mayCall(sa *schema.ServiceAccount, cell Cell) bool {
	if a.Proof != ProofToken || a.Endpoint == "" && cell != Listed {
		return true
	}
	return slices.Contains(sa.Spec.AllowedEndpoints, a.Endpoint)
}

// AccountMayHave reports whether a service account with that key can have a permission, if its
// scopes name it.
func AccountMayHave(account schema.Key, p Permission) bool {
	return RoleHas(serviceAccount, p) && (account.Project != "" || ofSharedRuntimes(p))
}

// ofSharedRuntimes reports whether a permission applies to a tenant's shared
// runtime: itself, its queue and its nodes.
func ofSharedRuntimes(p Permission) bool {
	return strings.HasPrefix(string(p), "shared_runtimes.") || strings.HasPrefix(string(p), "scheduler.")
}

// serviceAccount returns the account of k and the binding beside it; nil if none is in
// force.
func (r Rules) serviceAccount(k schema.Key) (*schema.ServiceAccount, *schema.RoleBinding) {
	base := r.Base.OrEmpty()
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

// Name returns the service account or the login; "" if the actor is unknown.
func (a Actor) Name() string {
	if !a.ServiceAccount.IsZero() {
		return a.ServiceAccount.String()
	}
	return a.Login
}

// author returns the login of the author; "" for a service account.
func (a Actor) author() string {
	if !a.ServiceAccount.IsZero() {
		return ""
	}
	return a.Login
}

// approvers returns the approvers other than the author. Only a forge knows them.
func (a Actor) approvers() []string {
	if a.Proof != ProofPullRequest {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(a.Approvers), func(login string) bool {
		return login == "" || sameLogin(login, a.author())
	})
}

func denied(n Need, reason, next string) Decision {
	return Decision{Need: n, Reason: reason, Next: next}
}

// askable denies n, and names the users who could approve, without except.
func (r Rules) askable(n Need, reason, except string) Decision {
	d := denied(n, reason, r.ask(n, except))
	d.Holders = r.holders(n, except)
	d.Holders = d.Holders[:min(len(d.Holders), maxHolders)]
	return d
}

// maxHolders limits the users that a message names.
const maxHolders = 3

// ask returns the next step of a user without n: users to ask, without except.
func (r Rules) ask(n Need, except string) string {
	logins := r.holders(n, except)
	if len(logins) == 0 {
		return "ask an administrator of the platform, as no other user has it there"
	}
	return "ask " + strings.Join(logins[:min(len(logins), maxHolders)], " or ")
}

// String returns "the platform", "physics" or "physics.lattice".
func (s Scope) String() string {
	switch {
	case s == Scope{}:
		return "the platform"
	case s.Project == "":
		return s.Tenant
	}
	return s.Tenant + "." + s.Project
}

// plain returns external text unchanged if it is harmless, otherwise quoted.
func plain(s string) string {
	for _, c := range s {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("-._[]/ ", c)) {
			return quote(s)
		}
	}
	return s[:min(len(s), maxText)]
}

// maxText limits one external text in a message, in bytes.
const maxText = 200

func quote(s string) string { return strconv.Quote(s[:min(len(s), maxText)]) }
