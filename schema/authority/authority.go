// Package authority decides who may change what: which permissions a change of a
// document needs, and whether a user has them by the role bindings in force
// (requirements A9, B1, B2; DESIGN §5).
//
// There is one table of permissions and roles, and one function that reads it. Code
// elsewhere names permissions, never roles.
//
// Roles hold along the chain project, tenant, platform. A project's role holds in
// the project; a project role that a tenant's binding gives holds in all projects of
// the tenant. A tenant's role holds in the tenant and its projects. A platform's
// role holds on documents of the platform, and on tenants only as break-glass
// access. No role reaches from one tenant into another, or upwards.
//
// The package is pure. It must not know Git, a forge, HTTP, the time or a scheduler.
package authority

import "berth/schema"

// Permission is a permission key, such as "apps.instance.create".
type Permission string

// Scope is where a permission is needed: the platform (zero), a tenant, or a project
// of a tenant.
type Scope struct {
	Tenant  string `json:"tenant,omitempty"`
	Project string `json:"project,omitempty"`
}

// Proof is the evidence of who an Actor is.
type Proof string

// The proofs.
const (
	ProofNone        Proof = ""             // nobody knows: no role
	ProofPullRequest Proof = "pull_request" // the forge says who wrote and who approved it
	ProofSignature   Proof = "signature"    // a commit signature by a key in force
	ProofToken       Proof = "token"        // a token of the API
)

// Actor is the user or service account that wants something.
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

// Decision says whether a Need is met, and by which role binding.
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

// Rules is the base of decisions: the estate in force before the change, and the
// administrators.
type Rules struct {
	Base           *schema.Desired // never the change's own
	Administrators []string        // logins that berth.yaml names: platform_superadmin
	// AdministratorKeys are signing keys that berth.yaml names for administrators,
	// so that they can start an estate without a forge.
	AdministratorKeys []string
	NoForge           bool // there is none, so that nobody can approve anything
}
