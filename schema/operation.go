package schema

// ServiceAccount is a machine's identity: of a project, or of a tenant for its
// shared runtimes (TSR). It proves itself with one of its keys: by a signed
// commit, or by a token of the read API that lives an hour at most. The private
// halves never come near Berth. Without a key, or suspended, it is nobody.
type ServiceAccount struct {
	Header
	Spec ServiceAccountSpec
}

// ServiceAccountSpec is the spec of a ServiceAccount. Only listed permissions are
// allowed, and only in the account's own project or tenant.
type ServiceAccountSpec struct {
	DisplayName      string      `json:"display_name"`
	PublicKeys       []PublicKey `json:"public_keys"`
	Scopes           []string    `json:"scopes"`            // permission keys, such as apps.instance.read
	AllowedEndpoints []string    `json:"allowed_endpoints"` // method and path, such as "GET /api/v1/projects/{project_id}/app-instances"
}

// PublicKey is one key of a ServiceAccount.
type PublicKey struct {
	ID  string `json:"id"`
	Key string `json:"key"` // as in an authorized_keys file, "ssh-ed25519 AAAA…"
}

// The operations on members.
const (
	OpDrain    = "drain"       // the member takes no new jobs; running ones end by on_jobs
	OpResume   = "resume"      // takes back a drain or a cordon of an operation
	OpCordon   = "cordon"      // the member takes no new jobs; running ones go on
	OpUncordon = "uncordon"    // as resume
	OpRestart  = "restart"     // restarts the daemon of the member
	OpReplace  = "replace"     // drains the member and moves it to another node
	OpRemove   = "remove"      // drains the member, which the declared count no longer has, and removes it
	OpLabel    = "label"       // sets labels at the runtime
	OpRetry    = "retry"       // tries a failed unit again
	OpHold     = "hold"        // keeps the unit as it is until a release
	OpRelease  = "release"     // ends the hold of the unit
	OpAccept   = "accept_loss" // replaces lost data by an empty start: the state, accounting or all of a unit
	// OpAbandonUsage lets a unit be stopped and deleted although what its jobs used cannot be read any more.
	OpAbandonUsage = "abandon_usage"
)

// EndsJobs reports whether an operation waits for jobs or cancels them.
func EndsJobs(operation string) bool {
	return operation == OpDrain || operation == OpReplace || operation == OpRemove
}

// IsOfUnit reports whether an operation is of a whole unit and names no member.
func IsOfUnit(operation string) bool {
	return operation == OpRetry || operation == OpHold || operation == OpRelease || AcceptsLoss(operation)
}

// AcceptsLoss reports whether an operation is a person's decision that data of a unit is lost. It needs a document in Git.
func AcceptsLoss(operation string) bool { return operation == OpAccept || operation == OpAbandonUsage }

// MemberOperation asks for one operation, once, on a member of an instance (or on the
// instance), or of a shared runtime (Key.Parent). Its uid, or its
// name without one, identifies the request: Berth never does the same request twice, and
// a finished one may be removed. It expires if it cannot start within a day.
type MemberOperation struct {
	Header
	Spec MemberOperationSpec
}

// Unit returns the key of the unit that an operation is about.
func (o *MemberOperation) Unit() Key {
	if o.Key.Parent != "" {
		return Key{Kind: KindSharedRuntime, Tenant: o.Key.Tenant, Name: o.Key.Parent}
	}
	return InstanceKey(o.Key.Tenant, o.Key.Project, o.Spec.Instance)
}

// MemberOperationSpec is the spec of a MemberOperation (ACP member-operations).
type MemberOperationSpec struct {
	Instance  string            `json:"instance,omitempty"` // of the project; empty where the place names a shared runtime
	Member    string            `json:"member,omitempty"`   // such as worker-0; empty for what is of the whole unit (IsOfUnit)
	Operation string            `json:"operation"`
	Labels    map[string]string `json:"labels,omitempty"` // for label: what to set
	Reason    string            `json:"reason"`
	OnJobs    *OnJobs           `json:"on_jobs,omitempty"` // for what would end jobs
}

// Pause stops every effect of Berth on runtimes while it stands, also if it
// cannot be read; reading, checking and telling go on.
type Pause struct {
	Header
	Spec PauseSpec
}

// PauseSpec is the spec of a Pause.
type PauseSpec struct {
	Reason string `json:"reason"`
}

// MemberOperations returns the operations in the order of their documentation.
func MemberOperations() []string {
	return []string{OpDrain, OpResume, OpCordon, OpUncordon, OpRestart, OpReplace, OpRemove, OpLabel, OpRetry, OpHold, OpRelease, OpAccept,
		OpAbandonUsage}
}
