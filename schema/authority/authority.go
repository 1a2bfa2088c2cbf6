// Package authority says who may change what: which permission keys a change of
// a document needs, and whether somebody has them by the role bindings in force
// (requirements A9, B1, B2; DESIGN §5).
//
// There is one table of permission keys and roles, and one function that reads
// it. Code elsewhere names permission keys, never roles.
//
// Roles are held along the chain project, tenant, platform: a project's role
// holds in the project, or in all of a tenant whose binding gives it; a tenant's
// in the tenant and its projects; a platform's on what is the platform's, and
// on tenants only by breaking the glass. Nothing reaches from one tenant into
// another, or up.
//
// The package is pure. It must not know Git, a forge, HTTP, the time or a
// scheduler.
package authority

import "berth/schema"

// Permission is a permission key, such as "apps.instance.create".
type Permission string

// Scope is where a permission is needed: the platform (zero), a tenant, or a
// project of it.
type Scope struct {
	Tenant  string `json:"tenant,omitempty"`
	Project string `json:"project,omitempty"`
}

// Proof is how it is known who an Actor is.
type Proof string

// The proofs.
const (
	ProofNone        Proof = ""             // nobody knows: no role
	ProofPullRequest Proof = "pull_request" // the forge says who wrote and who approved it
	ProofSignature   Proof = "signature"    // a commit signature by a key in force
	ProofToken       Proof = "token"        // a token of the API
)

// Actor is who wants something.
type Actor struct {
	Login          string     `json:"login,omitempty"`          // at the forge; "" for a service account or nobody
	ServiceAccount schema.Key `json:"service_account,omitzero"` // zero for a person
	Approvers      []string   `json:"approvers,omitempty"`      // logins whose approval stands on the final head, sorted
	Proof          Proof      `json:"proof,omitempty"`          //
	SigningKey     string     `json:"signing_key,omitempty"`    // with ProofSignature by a person: the key, spelt as in the RoleBinding (or berth.yaml) that names it
	Endpoint       string     `json:"endpoint,omitempty"`       // with ProofToken: method and path of the call, spelt as in allowed_endpoints
	BreakGlass     string     `json:"break_glass,omitempty"`    // the reason given for acting outside one's own tenants; "": not asked for
}

// Need is one permission that a change needs.
type Need struct {
	Permission Permission `json:"permission"`
	Scope      Scope      `json:"scope"`
	AtLeast    string     `json:"at_least,omitempty"` // a role: only this one or a higher one will do, as nobody gives what they have not; "" any with the permission
	Key        schema.Key `json:"key"`                // the document
	File       string     `json:"file"`               // where it stands
	Why        string     `json:"why"`                // for people, such as "creates Instance physics.lattice/train"

	EndsApproval bool `json:"ends_approval,omitempty"` // the document is a policy that asks for approval, and would not any more
}

// Decision is whether a Need is met, and by what.
type Decision struct {
	Need
	Allowed    bool            `json:"allowed"`
	By         string          `json:"by,omitempty"`          // login or service account that has it
	Role       string          `json:"role,omitempty"`        // by which role
	Source     schema.Position `json:"source,omitzero"`       // the binding; zero for an administrator of berth.yaml
	BreakGlass bool            `json:"break_glass,omitempty"` // by break-glass access; to be shown and audited
	Reason     string          `json:"reason"`                // why it is allowed or denied; one sentence
	Next       string          `json:"next,omitempty"`        // denied: what to do
	Holders    []string        `json:"holders,omitempty"`     // denied: logins whose approval would be enough, the first few
}

// Message is the reason with the next step.
func (d *Decision) Message() string {
	if d.Next == "" {
		return d.Reason
	}
	return d.Reason + ": " + d.Next
}

// Rules are what decisions rest on: the estate in force before the change, and
// who operates it.
type Rules struct {
	Base           *schema.Desired // never the change's own
	Administrators []string        // logins that berth.yaml names: platform_superadmin
	// AdministratorKeys are signing keys that berth.yaml names for them, so that
	// an estate without a forge has a beginning.
	AdministratorKeys []string
	NoForge           bool // there is none, so that nobody can approve anything
}
