// Package authority decides whether a user may make a change: the permissions that a
// change of a document needs, and whether a user has them by the role bindings in force
// (requirements A9, B1, B2).
//
// There is one table of permissions and roles, and one function that reads it. Other
// code names permissions, never roles.
//
// Roles apply along the chain project, tenant, platform. A project's role applies in the
// project; a project role that a tenant's binding gives applies in all projects of the
// tenant. A tenant's role applies in the tenant and its projects. A platform's role
// applies to documents of the platform, and to tenants only as break-glass access. No
// role applies in another tenant, or above its scope.
//
// The package is pure. It must not know Git, a forge, HTTP, the time or a scheduler.
package authority

import "berth/schema"

// Permission is a permission key, such as "apps.instance.create".
type Permission string

// Scope is the place of a permission: the platform (zero), a tenant, or a project of a
// tenant.
type Scope struct {
	Tenant  string `json:"tenant,omitempty"`
	Project string `json:"project,omitempty"`
}

// Proof is the evidence for the identity of an Actor.
type Proof string

// The proofs.
const (
	ProofNone        Proof = ""             // unknown actor: no role
	ProofPullRequest Proof = "pull_request" // the forge reports author and approvers
	ProofSignature   Proof = "signature"    // a commit signature by a key in force
	ProofToken       Proof = "token"        // a token of the API
)

// Actor is the user or service account that requests a change.
type Actor struct {
	Login          string     `json:"login,omitempty"`          // at the forge; "" for a service account or an unknown actor
	ServiceAccount schema.Key `json:"service_account,omitzero"` // zero for a person
	Approvers      []string   `json:"approvers,omitempty"`      // logins with an approval of the final head, sorted
	Proof          Proof      `json:"proof,omitempty"`          //
	// with ProofSignature by a person: the key, spelt as in the RoleBinding (or berth.yaml) that names it
	SigningKey string `json:"signing_key,omitempty"`
	Endpoint   string `json:"endpoint,omitempty"`    // with ProofToken: method and path of the call, spelt as in allowed_endpoints
	BreakGlass string `json:"break_glass,omitempty"` // the given reason for break-glass access; "": not requested
}

// Need is one permission that a change needs.
type Need struct {
	Permission Permission `json:"permission"`
	Scope      Scope      `json:"scope"`
	// least role that satisfies it, because nobody may give a higher role than their own; "": any role with the permission
	AtLeast string     `json:"at_least,omitempty"`
	Key     schema.Key `json:"key"`  // the document
	File    string     `json:"file"` // file of the document
	Why     string     `json:"why"`  // free text, such as "creates Instance physics.lattice/train"

	EndsApproval bool `json:"ends_approval,omitempty"` // the change removes require_approval from this policy
}

// Decision says whether a Need is met, and by which role binding.
type Decision struct {
	Need
	Allowed bool   `json:"allowed"`
	By      string `json:"by,omitempty"`   // login or service account that has the permission
	Role    string `json:"role,omitempty"` // role that gives it
	// the role binding, zero for an administrator of berth.yaml; if denied by Rule: its line
	Source     schema.Position `json:"source,omitzero"`
	Rule       string          `json:"rule,omitempty"`        // if denied by a rule beside the roles, such as RuleAppRequires
	BreakGlass bool            `json:"break_glass,omitempty"` // by break-glass access, which is shown and audited
	Reason     string          `json:"reason"`                // reason of the decision; one sentence
	Next       string          `json:"next,omitempty"`        // if denied: the next step
	Holders    []string        `json:"holders,omitempty"`     // if denied: first few logins whose approval would suffice
}

// Message returns the reason with the next step.
func (d *Decision) Message() string {
	if d.Next == "" {
		return d.Reason
	}
	return d.Reason + ": " + d.Next
}

// Rules are the basis of decisions: the estate in force before the change, and the
// administrators.
type Rules struct {
	Base           *schema.Desired // never with the change itself
	Administrators []string        // logins that berth.yaml names: platform_superadmin
	// AdministratorKeys are signing keys that berth.yaml names for administrators,
	// so that they can start an estate without a forge.
	AdministratorKeys []string
	NoForge           bool // without a forge nobody can approve
}
