package plan

import (
	"slices"
	"strings"
)

// Condition is a condition as in kstatus: one statement about a resource in its status.
type Condition struct {
	Type     ConditionType   `json:"type"`
	Status   ConditionStatus `json:"status"`
	Reason   Reason          `json:"reason"`
	Message  string          `json:"message,omitempty"`
	Revision string          `json:"observed_revision,omitempty"`
}

// Is reports whether the condition is there and has a status.
func (c *Condition) Is(status ConditionStatus) bool { return c != nil && c.Status == status }

func conditionOf(cs []Condition, typ ConditionType) *Condition {
	if i := slices.IndexFunc(cs, func(c Condition) bool { return c.Type == typ }); i >= 0 {
		return &cs[i]
	}
	return nil
}

// ConditionType is the statement that a condition makes.
type ConditionType string

// The types. A resource has only those that its kind can have.
const (
	ConditionReady           ConditionType = "Ready"           // The resource is as declared, and can be used.
	ConditionReconciling     ConditionType = "Reconciling"     // Berth is changing the resource, or has a change to make.
	ConditionStalled         ConditionType = "Stalled"         // No wait changes the resource: it needs a person or a commit.
	ConditionAuthorized      ConditionType = "Authorized"      // A user with the permission made or approved the last change.
	ConditionPolicyCompliant ConditionType = "PolicyCompliant" // The resource and its last change comply with policy.
	ConditionScheduled       ConditionType = "Scheduled"       // Every member of the unit has a node.
	ConditionWithinQuota     ConditionType = "WithinQuota"     // The quotas of use of the unit's project and tenant are not used up.
	ConditionDegraded        ConditionType = "Degraded"        // Some workers of the unit take no jobs.
	ConditionDriftDetected   ConditionType = "DriftDetected"   // A host differs from what Berth applied to it.
	ConditionSuspended       ConditionType = "Suspended"       // A document suspends the resource, or the estate is paused.
	ConditionOnHold          ConditionType = "OnHold"          // The operation hold keeps the unit as it is.
	ConditionVerified        ConditionType = "Verified"        // The published bytes are those of the document.
	ConditionRollbackExpired ConditionType = "RollbackExpired" // The last day of the rollback of a queue map is over.
	ConditionCapacityDiffers ConditionType = "CapacityDiffers" // The host of a node has other capacity than its document declares.
	ConditionClockDiffers    ConditionType = "ClockDiffers"    // The clock of the host of a node is a minute or more off the daemon's.
)

// ConditionStatus says whether a condition holds.
type ConditionStatus string

// The statuses.
const (
	ConditionTrue    ConditionStatus = "True"    // The condition holds.
	ConditionFalse   ConditionStatus = "False"   // The condition does not hold.
	ConditionUnknown ConditionStatus = "Unknown" // Berth does not know: a host or a source did not answer, or nothing was observed yet.
)

// StatusOf returns the status of a condition that is known to hold or not.
func StatusOf(holds bool) ConditionStatus {
	if holds {
		return ConditionTrue
	}
	return ConditionFalse
}

// Reason is the cause of a condition's status, one word for machines. Besides the reasons below, a
// phase (ReasonOfPhase), the code of a Blocked, the kind of a Drift and the result of a verification
// of bytes are reasons.
type Reason string

// The reasons.
const (
	ReasonNone    Reason = "None"    // Nothing is wrong.
	ReasonPaused  Reason = "Paused"  // platform/pause.yaml, a pause of the site or the operation hold is in force.
	ReasonHeld    Reason = "Held"    // A change of the document is held: a permission is missing, or policy denies it.
	ReasonFailed  Reason = "Failed"  // An action failed; the message names it.
	ReasonWaiting Reason = "Waiting" // The plan waits for jobs, a drain or a fault that a person has to mend.
	ReasonBlocked Reason = "Blocked" // The plan is blocked; the message says by what.

	ReasonObservationUnknown Reason = "ObservationUnknown" // The control host did not answer, or its answer is not usable.
	ReasonNotObserved        Reason = "NotObserved"        // The unit was not observed since its document changed.
	ReasonStoppedByPolicy    Reason = "StoppedByPolicy"    // The unit is stopped because its grace ended.

	ReasonProgressing          Reason = "Progressing"          // Berth applies the plan.
	ReasonProgressingWithRetry Reason = "ProgressingWithRetry" // An attempt failed, and Berth tries again.
	ReasonRetriesExhausted     Reason = "RetriesExhausted"     // The last attempt failed: a new commit or /berth retry tries again.
	ReasonHostConfiguration    Reason = "HostConfiguration"    // A host key, an address or an account of a host is wrong.

	ReasonPermitted Reason = "Permitted" // No change of the document lacks a permission.
	ReasonAllowed   Reason = "Allowed"   // No policy denies the resource.
	ReasonGrace     Reason = "Grace"     // The unit breaks a policy, and goes on until the end of its grace.
	ReasonStopped   Reason = "Stopped"   // The unit breaks a policy, and is stopped because its grace ended.

	ReasonGPUHoursUsedUp Reason = "GPUHoursUsedUp" // Changes that add GPUs are held until the month ends; running units go on.

	ReasonPlaced              Reason = "Placed"              // Every member has a node.
	ReasonMembersOutOfService Reason = "MembersOutOfService" // Workers do not run, or run and take no jobs; the message names them.

	ReasonDeclared Reason = "Declared" // A document says suspend: true.
	ReasonResumed  Reason = "Resumed"  // The resource was suspended before.

	ReasonOperation Reason = "Operation" // An operation asked for it; the message names the operation.

	ReasonAttached     Reason = "Attached"     // The shared runtime has the project.
	ReasonAttaching    Reason = "Attaching"    // The shared runtime is to get the project.
	ReasonDetaching    Reason = "Detaching"    // The project or the owner has withdrawn, and the project's jobs end.
	ReasonNotAccepted  Reason = "NotAccepted"  // No Instance of the project names the shared runtime.
	ReasonWithoutTerms Reason = "WithoutTerms" // The shared runtime names the project, and no Attachment states terms for it.

	ReasonInForce    Reason = "InForce"    // The queue map is in force.
	ReasonNoRollback Reason = "NoRollback" // The queue map declares no rollback.
	ReasonActive     Reason = "Active"     // The declared rollback has not expired.
	ReasonExpired    Reason = "Expired"    // The last day of the declared rollback is over.

	ReasonNeverAnswered          Reason = "NeverAnswered"          // The host of the node has not answered yet.
	ReasonHostAnswers            Reason = "HostAnswers"            // The host of the node answers.
	ReasonHostSilent             Reason = "HostSilent"             // The host of the node does not answer.
	ReasonAnswerUnusable         Reason = "AnswerUnusable"         // The host of the node answers, and its facts cannot be read.
	ReasonHostAndSchedulerSilent Reason = "HostAndSchedulerSilent" // Neither Berth nor the scheduler reaches the host of the node.
	ReasonCapacityAsDeclared     Reason = "CapacityAsDeclared"     // The host of the node has at least the declared capacity.
	ReasonCapacityMissing        Reason = "CapacityMissing"        // The host of the node has less than declared; the message has the numbers.
	ReasonClockAgrees            Reason = "ClockAgrees"            // The clocks of the host of the node and of the daemon agree.
	ReasonClockOff               Reason = "ClockOff"               // The clocks differ by a minute or more; the message has the difference.

	ReasonNotVerified Reason = "NotLookedAt" // The bytes were not verified since the last change of the document.
)

// ReasonOfPhase returns the reason that names a phase of a unit, an operation or another resource:
// the phase with a capital letter. A phase is not empty.
func ReasonOfPhase[P ~string](phase P) Reason {
	return Reason(strings.ToUpper(string(phase[:1])) + string(phase[1:]))
}

// Blocked gives the reason why a unit cannot be planned or must wait.
type Blocked struct {
	Code    BlockedCode `json:"code"`
	Message string      `json:"message"`
	Wait    bool        `json:"wait,omitempty"` // true: a later observation may resolve it
	Node    string      `json:"node,omitempty"` // the node whose host does not answer; "": none is the reason

	Artifact string `json:"artifact,omitempty"` // the reference of the artifact that is not verified; "": none is the reason
}

// BlockedCode is the cause of a Blocked. It is the reason of Stalled, Scheduled and
// PolicyCompliant where it causes them.
type BlockedCode string

// The codes.
const (
	CodeUnknown           BlockedCode = "observe.unknown"     // The presence of the unit is unknown.
	CodeUnreachable       BlockedCode = "member.unreachable"  // The host of a member does not answer.
	CodeMissing           BlockedCode = "member.missing"      // A member is missing, and Berth waits for missing_grace_seconds.
	CodeUnavailable       BlockedCode = "member.unavailable"  // Members wait until others are back (max_unavailable).
	CodeStopped           BlockedCode = "state.stopped"       // Changes wait until the start of the instance.
	CodeSuspended         BlockedCode = "suspended"           // A document says suspend: true.
	CodeOperatorSuspended BlockedCode = "operator.suspended"  // The service account that operates the unit is suspended.
	CodeShared            BlockedCode = "shared"              // The shared runtime has not attached the project.
	CodeLost              BlockedCode = "unit.lost"           // The host has nothing of a unit that was made on it.
	CodeOperation         BlockedCode = "operation"           // An operation cannot be done as it is, or not yet.
	CodeNoRuntime         BlockedCode = "runtime.missing"     // The daemon has no runtime for the unit's backend.
	CodeBackend           BlockedCode = "runtime.changed"     // No backend takes over a unit of another.
	CodeUnverified        BlockedCode = "artifact.unverified" // Bytes of the version are missing, or differ from the reviewed ones.
	CodeReviewPending     BlockedCode = "review.pending"      // The pull request of the change is not known yet.
	CodeRate              BlockedCode = "change.rate"         // Policy allows no further change in this hour.
	CodeStale             BlockedCode = "plan.stale"          // The plan differs from the reviewed one, and no user has approved it.
	CodeDenied            BlockedCode = "policy.denied"       // A rule denies the unit.
	CodeNoNode            BlockedCode = "place.no_node"       // No node fits a missing member.
	CodeStays             BlockedCode = "place.stays"         // A member no longer fits its node, and no other node does.
	CodeControlPlane      BlockedCode = "place.control_plane" // The control plane would have to move, which no runtime supports.
)

// IsPolicy reports whether policy denies the unit.
func (c BlockedCode) IsPolicy() bool { return c == CodeDenied }

// IsPlacement reports whether members have no node that fits.
func (c BlockedCode) IsPlacement() bool {
	return c == CodeNoNode || c == CodeStays || c == CodeControlPlane
}

// Reason returns the reason of a condition that a Blocked causes.
func (c BlockedCode) Reason() Reason { return Reason(c) }

// Drift is a difference between the applied and the observed state that no member
// state explains.
type Drift struct {
	Member string    `json:"member"`
	What   DriftKind `json:"what"`
	Detail string    `json:"detail,omitempty"`
}

// DriftKind is what differs, such as "users". Each runtime has kinds of its own.
type DriftKind string

// Reason returns the reason of the condition DriftDetected.
func (k DriftKind) Reason() Reason { return Reason(k) }
