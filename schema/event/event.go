// Package event holds the domain events: their types, their payloads, and the published
// schemas of both (requirements A8, A11, D1, D2). The schemas are files beside this
// package, and a test holds them equal to the Go types. The envelope is that of the app
// control plane.
//
// The package is pure. It must not know the sender, the transport or the readers of an
// event.
package event

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"

	"berth/schema"
)

// Type identifies an event.
type Type string

// The events of the app control plane and of shared runtimes, and Berth's own.
const (
	EntitlementUpdated Type = "apps.entitlement.updated"

	InstanceRequested Type = "apps.instance.requested"
	InstanceRunning   Type = "apps.instance.running"
	InstanceFailed    Type = "apps.instance.failed"
	InstanceDeleting  Type = "apps.instance.deleting"
	InstanceDeleted   Type = "apps.instance.deleted"

	InstanceSuspended Type = "berth.instance.suspended"
	InstanceResumed   Type = "berth.instance.resumed"

	MembersMoved Type = "berth.members.moved"
	JobsLost     Type = "berth.jobs.lost"

	ArtifactRegistered Type = "apps.artifact.registered"
	ArtifactPromoted   Type = "apps.artifact.promoted"
	ArtifactDeprecated Type = "apps.artifact.deprecated"
	ArtifactRetired    Type = "apps.artifact.retired"

	SharedRuntimeRequested Type = "apps.shared_runtime.requested"
	SharedRuntimeRunning   Type = "apps.shared_runtime.running"
	SharedRuntimeFailed    Type = "apps.shared_runtime.failed"
	SharedRuntimeDeleting  Type = "apps.shared_runtime.deleting"
	SharedRuntimeDeleted   Type = "apps.shared_runtime.deleted"

	AttachmentRequested Type = "apps.shared_runtime.attachment.requested"
	AttachmentAttached  Type = "apps.shared_runtime.attachment.attached"
	AttachmentFailed    Type = "apps.shared_runtime.attachment.failed"
	AttachmentDetached  Type = "apps.shared_runtime.attachment.detached"

	OperationRequested Type = "berth.operation.requested"
	OperationDone      Type = "berth.operation.done"
	OperationFailed    Type = "berth.operation.failed"
	OperationExpired   Type = "berth.operation.expired"
	RetryTriggered     Type = "berth.retry.triggered"

	NodeReady    Type = "berth.node.ready"
	NodeNotReady Type = "berth.node.not_ready"
	NodeUnknown  Type = "berth.node.unknown"
	NodeLost     Type = "berth.node.lost"

	QueueModeChanged     Type = "berth.queuemap.mode_changed"
	QueueRollbackBegan   Type = "berth.queuemap.rollback_began"
	QueueRollbackExpired Type = "berth.queuemap.rollback_expired"
	QueueRollbackEnded   Type = "berth.queuemap.rollback_ended"

	NodeThresholdExceeded Type = "berth.node.threshold_exceeded"
	NodeThresholdEnded    Type = "berth.node.threshold_ended"

	ConditionChanged Type = "berth.condition.changed"

	RuleFired  Type = "berth.rule.fired"
	RuleDone   Type = "berth.rule.done"
	RuleFailed Type = "berth.rule.failed"
)

// Version is the version of the envelope and the payloads in the schemas.
const Version = "1"

// Entitlement is the payload of EntitlementUpdated.
type Entitlement struct {
	OrgID     string `json:"org_id" doc:"tenant"`
	ProjectID string `json:"project_id" doc:"<tenant>.<project>"`
	AppSlug   string `json:"app_slug" doc:"app the project may use, or no longer"`
	Enabled   bool   `json:"enabled" doc:"false also when the entitlement was taken away"`
	UpdatedBy string `json:"updated_by" doc:"who changed it: a login; empty where nobody is known"`
	Revision  string `json:"revision" doc:"commit of the configuration that did"`
}

// Instance is the payload of the instance events.
type Instance struct {
	OrgID             string `json:"org_id" doc:"tenant"`
	ProjectID         string `json:"project_id" doc:"<tenant>.<project>"`
	AppSlug           string `json:"app_slug" doc:"app it is an instance of"`
	AppInstanceID     string `json:"app_instance_id" doc:"the instance's uid if it has one, else its name, as in the API"`
	ResourceName      string `json:"resource_name" doc:"<tenant>.<project>/<name>"`
	Status            string `json:"status" doc:"phase it is in now"`
	OperatingMode     string `json:"operating_mode" doc:"tenant_dedicated or platform_managed; empty where never decided"`
	ControlPlaneScope string `json:"control_plane_scope" doc:"project, tenant or platform; empty where never decided"`
	RuntimeBackend    string `json:"runtime_backend" doc:"kind of runtime that carries it; empty where never decided"`
	Revision          string `json:"revision" doc:"commit of the configuration it follows"`
	FailureReason     string `json:"failure_reason" doc:"what went wrong; empty unless something did"`
	RequestedBy       string `json:"requested_by" doc:"who brought the document that made it, as proven: a login or a service account; empty where nobody is known"`
}

// Suspension is the payload of InstanceSuspended and InstanceResumed.
type Suspension struct {
	OrgID             string `json:"org_id" doc:"tenant"`
	ProjectID         string `json:"project_id" doc:"<tenant>.<project>"`
	AppSlug           string `json:"app_slug" doc:"app it is an instance of"`
	AppInstanceID     string `json:"app_instance_id" doc:"the instance's uid if it has one, else its name, as in the API"`
	ResourceName      string `json:"resource_name" doc:"<tenant>.<project>/<name>"`
	Status            string `json:"status" doc:"phase it is in now"`
	OperatingMode     string `json:"operating_mode" doc:"tenant_dedicated or platform_managed; empty where never decided"`
	ControlPlaneScope string `json:"control_plane_scope" doc:"project, tenant or platform; empty where never decided"`
	RuntimeBackend    string `json:"runtime_backend" doc:"kind of runtime that carries it; empty where never decided"`
	Revision          string `json:"revision" doc:"commit of the configuration that suspended or resumed it"`
	Reason            string `json:"reason" doc:"Declared (a document says suspend: true), Paused (platform/pause.yaml) or Resumed"`
	Message           string `json:"message" doc:"for people: which document, or why the estate is paused"`
}

// LostJobs is the payload of JobsLost.
type LostJobs struct {
	OrgID           string `json:"org_id" doc:"tenant; empty: the platform owns the shared runtime"`
	ProjectID       string `json:"project_id" doc:"<tenant>.<project> of the instance; empty: it is a shared runtime"`
	AppSlug         string `json:"app_slug" doc:"app of the unit"`
	AppInstanceID   string `json:"app_instance_id" doc:"the instance's uid if it has one, else its name; empty: it is a shared runtime"`
	SharedRuntimeID string `json:"shared_runtime_id" doc:"the shared runtime's uid if it has one, else its name; empty: it is an instance"`
	ResourceName    string `json:"resource_name" doc:"<tenant>.<project>/<name> or <tenant>/<name> of the unit"`
	Status          string `json:"status" doc:"phase of the unit"`
	Jobs            string `json:"jobs" doc:"ids of the jobs, separated by commas: at most 100, then how many more"`
	Users           string `json:"users" doc:"their users, separated by commas"`
	Revision        string `json:"revision" doc:"commit of the configuration that the unit follows"`
}

// Moved is the payload of MembersMoved. It names no node: projects read it.
type Moved struct {
	OrgID           string `json:"org_id" doc:"tenant; empty: the platform owns the shared runtime"`
	ProjectID       string `json:"project_id" doc:"<tenant>.<project> of the instance; empty: it is a shared runtime"`
	AppSlug         string `json:"app_slug" doc:"app of the unit"`
	AppInstanceID   string `json:"app_instance_id" doc:"the instance's uid if it has one, else its name; empty: it is a shared runtime"`
	SharedRuntimeID string `json:"shared_runtime_id" doc:"the shared runtime's uid if it has one, else its name; empty: it is an instance"`
	ResourceName    string `json:"resource_name" doc:"<tenant>.<project>/<name> or <tenant>/<name> of the unit"`
	Status          string `json:"status" doc:"phase of the unit"`
	Members         string `json:"members" doc:"members that got another node, separated by commas"`
	Revision        string `json:"revision" doc:"commit of the configuration that the unit follows"`
}

// Artifact is the payload of the artifact events.
type Artifact struct {
	OrgID        string `json:"org_id" doc:"tenant"`
	ProjectID    string `json:"project_id" doc:"<tenant>.<project>"`
	AppSlug      string `json:"app_slug" doc:"app it is for"`
	ArtifactID   string `json:"artifact_id" doc:"the artifact's uid if it has one, else its name, as in the API"`
	ResourceName string `json:"resource_name" doc:"<tenant>.<project>/<name>"`
	Status       string `json:"status" doc:"where it is in its life"`
	Source       string `json:"source" doc:"name of the artifact source it lies in"`
	Reference    string `json:"reference" doc:"where in the source: repository and tag, or path"`
	MediaType    string `json:"media_type" doc:"format of its bytes"`
	Digest       string `json:"digest" doc:"of its bytes, as sha256:…; empty before it is registered"`
	Revision     string `json:"revision" doc:"commit of the configuration it follows"`
}

// SharedRuntime is the payload of the shared runtime events.
type SharedRuntime struct {
	OrgID             string `json:"org_id" doc:"tenant that owns it; empty: the platform does"`
	AppSlug           string `json:"app_slug" doc:"app it runs"`
	SharedRuntimeID   string `json:"shared_runtime_id" doc:"its uid if it has one, else its name, as in the API"`
	ResourceName      string `json:"resource_name" doc:"<tenant>/<name>, or its name where the platform owns it"`
	Status            string `json:"status" doc:"phase it is in now"`
	OperatingMode     string `json:"operating_mode" doc:"tenant_dedicated or platform_managed; empty where never decided"`
	ControlPlaneScope string `json:"control_plane_scope" doc:"tenant or platform; empty where never decided"`
	RuntimeBackend    string `json:"runtime_backend" doc:"kind of runtime that carries it; empty where never decided"`
	OperatorID        string `json:"operator_service_account_id" doc:"<tenant>/<name> of the service account that operates it, or platform"`
	Revision          string `json:"revision" doc:"commit of the configuration it follows"`
	FailureReason     string `json:"failure_reason" doc:"what went wrong; empty unless something did"`
}

// Attachment is the payload of the attachment events.
type Attachment struct {
	OrgID             string `json:"org_id" doc:"tenant that owns the shared runtime; empty: the platform does"`
	ProjectID         string `json:"project_id" doc:"<tenant>.<project> that is attached"`
	AppSlug           string `json:"app_slug" doc:"app the shared runtime runs"`
	SharedRuntimeID   string `json:"shared_runtime_id" doc:"the shared runtime's uid if it has one, else its name, as in the API"`
	AttachmentID      string `json:"attachment_id" doc:"its uid if it has one, else its name, as in the API"`
	ResourceName      string `json:"resource_name" doc:"<tenant>/<shared runtime>/<name>, without the tenant where the platform owns the shared runtime"`
	Status            string `json:"status" doc:"where it is in its life"`
	OperatingMode     string `json:"operating_mode" doc:"of the shared runtime; empty where never decided"`
	ControlPlaneScope string `json:"control_plane_scope" doc:"of the shared runtime; empty where never decided"`
	RuntimeBackend    string `json:"runtime_backend" doc:"of the shared runtime; empty where never decided"`
	BillingPolicyRef  string `json:"billing_policy_ref" doc:"a name the billing system knows; empty: none"`
	Revision          string `json:"revision" doc:"commit of the configuration it follows"`
	FailureReason     string `json:"failure_reason" doc:"what went wrong; empty unless something did"`
}

// Operation is the payload of the events of operations on units.
type Operation struct {
	OrgID           string `json:"org_id" doc:"tenant; empty: the platform owns the shared runtime"`
	ProjectID       string `json:"project_id" doc:"<tenant>.<project> of the instance; empty: it is on a shared runtime"`
	AppSlug         string `json:"app_slug" doc:"app of the unit"`
	AppInstanceID   string `json:"app_instance_id" doc:"the instance's uid if it has one, else its name; empty: it is on a shared runtime"`
	SharedRuntimeID string `json:"shared_runtime_id" doc:"the shared runtime's uid if it has one, else its name; empty: it is on an instance"`
	OperationID     string `json:"operation_id" doc:"uid of the document, else its name, or the id of the request"`
	ResourceName    string `json:"resource_name" doc:"<tenant>.<project>/<name> or <tenant>/<shared runtime>/<name> of the operation"`
	MemberID        string `json:"member_id" doc:"member, such as worker-0; empty: the whole unit"`
	Operation       string `json:"operation" doc:"drain, resume, cordon, uncordon, restart, replace, remove, label, retry, hold, release, accept_loss or abandon_usage"`
	Status          string `json:"status" doc:"where it is in its life"`
	Reason          string `json:"reason" doc:"reason that the operation states"`
	Result          string `json:"result" doc:"what came of it; empty where done says all"`
	RequestedBy     string `json:"requested_by" doc:"who asked for it: a login or a service account; empty where nobody is known"`
	Revision        string `json:"revision" doc:"commit that asked for it; empty for a request without a document"`
}

// QueueMap is the payload of the events of a queue map's mode and rollback (requirements C5, C6).
type QueueMap struct {
	OrgID        string    `json:"org_id" doc:"the only tenant of applies_to; empty: the map serves several, or everybody"`
	ProjectID    string    `json:"project_id" doc:"the only project of applies_to, as <tenant>.<project>; empty: the map serves several"`
	AppSlug      string    `json:"app_slug" doc:"app whose queues it maps"`
	ResourceName string    `json:"resource_name" doc:"name of the map"`
	AppliesTo    string    `json:"applies_to" doc:"tenants and projects that it serves, separated by commas; empty: everybody"`
	Status       string    `json:"status" doc:"mode now: passthrough, stub-policy or real-policy; deleted: the map is gone"`
	PreviousMode string    `json:"previous_mode" doc:"mode before; empty: none was recorded, or this event changes none"`
	Revision     string    `json:"revision" doc:"commit of the configuration that changed the map"`
	Rollback     Rollback  `json:"rollback" doc:"declared rollback, or the one that ended; its fields are empty without one"`
	Telemetry    Telemetry `json:"telemetry" doc:"fields of cutover and rollback telemetry"`
}

// Rollback is the declared rollback of a queue map.
type Rollback struct {
	Owner     string `json:"owner" doc:"who answers for it"`
	Reason    string `json:"reason" doc:"what happened"`
	ExpiresAt string `json:"expires_at" doc:"last day, UTC, as 2026-12-31"`
	FollowUp  string `json:"follow_up" doc:"task that removes it"`
	Runbook   string `json:"runbook" doc:"page with the steps"`
}

// Telemetry has the fields that a cutover contract names, with the names of the boundary's answer.
type Telemetry struct {
	TraceID         string `json:"trace_id" doc:"W3C trace id of the correlation id"`
	TenantID        string `json:"tenant_id" doc:"as org_id"`
	WorkspaceID     string `json:"workspace_id" doc:"as project_id"`
	JobID           string `json:"job_id" doc:"empty: a change of a map is about no job"`
	Adapter         string `json:"adapter" doc:"mode now; empty: the map is gone"`
	ContractVersion string `json:"contract_version" doc:"version of the contract that the map names; empty: it names none"`
	RequestedQueue  string `json:"requested_queue" doc:"empty: no queue is requested"`
	ResolvedQueue   string `json:"resolved_queue" doc:"empty: no queue is resolved"`
	UsedFallback    bool   `json:"used_fallback" doc:"false: no queue is resolved"`
}

// Node is the payload of the events of nodes (requirements E3, E5). It has no address.
type Node struct {
	OrgID          string `json:"org_id" doc:"empty: nodes are the platform's"`
	ResourceName   string `json:"resource_name" doc:"name of the node"`
	Status         string `json:"status" doc:"state of the node now"`
	PreviousStatus string `json:"previous_status" doc:"state before: ready, not_ready, unknown or lost"`
	Reason         string `json:"reason" doc:"why, as the condition Ready of the node has it"`
	Region         string `json:"region" doc:"declared region"`
	Revision       string `json:"revision" doc:"commit that was in force when Berth first recorded the node"`
}

// NodeThreshold is the payload of the events of a node's metric and the threshold of a rule (requirement E8).
type NodeThreshold struct {
	OrgID        string `json:"org_id" doc:"empty: nodes are the platform's"`
	ResourceName string `json:"resource_name" doc:"name of the node"`
	Rule         string `json:"rule" doc:"name of the rule that has the threshold"`
	RuleID       string `json:"rule_id" doc:"uid of the rule, else its name"`
	Metric       string `json:"metric" doc:"name of the metric"`
	Value        string `json:"value" doc:"value that the host reported"`
	Threshold    string `json:"threshold" doc:"such as above 90 for 120s"`
	Status       string `json:"status" doc:"exceeded or ended"`
	Revision     string `json:"revision" doc:"commit of the configuration in force"`
}

// Condition is the payload of ConditionChanged (requirement E8). It has no message: that may name nodes.
type Condition struct {
	OrgID        string `json:"org_id" doc:"tenant of the resource; empty: the platform's"`
	ProjectID    string `json:"project_id" doc:"<tenant>.<project> of the resource; empty: it is in no project"`
	AppSlug      string `json:"app_slug" doc:"app of the resource; empty: none"`
	ResourceKind string `json:"resource_kind" doc:"kind of the resource: Instance, SharedRuntime or Node"`
	ResourceName string `json:"resource_name" doc:"name of the resource, as its other events have it"`
	Condition    string `json:"condition" doc:"type of the condition"`
	Status       string `json:"status" doc:"True, False or Unknown; empty: the resource has the condition no longer"`
	Reason       string `json:"reason" doc:"reason of the condition"`
	Revision     string `json:"revision" doc:"commit of the configuration that the resource follows"`
}

// Rule is the payload of the events of rules (requirement E8). It is about the resource of the event that the rule fired on.
type Rule struct {
	OrgID         string `json:"org_id" doc:"tenant of the resource; empty: the platform's"`
	ProjectID     string `json:"project_id" doc:"<tenant>.<project> of the resource; empty: it is in no project"`
	AppSlug       string `json:"app_slug" doc:"app of the resource; empty: none"`
	ResourceKind  string `json:"resource_kind" doc:"kind of the resource"`
	ResourceName  string `json:"resource_name" doc:"name of the resource, as the event that the rule fired on has it"`
	Rule          string `json:"rule" doc:"name of the rule"`
	RuleID        string `json:"rule_id" doc:"uid of the rule, else its name"`
	FiringID      string `json:"firing_id" doc:"event_id of the firing"`
	TriggerID     string `json:"trigger_id" doc:"event_id of the event that the rule fired on"`
	TriggerType   string `json:"trigger_type" doc:"type of the event that the rule fired on"`
	Severity      string `json:"severity" doc:"info, warning or critical; empty: the rule has no alert"`
	Summary       string `json:"summary" doc:"text of the alert; empty: the rule has no alert"`
	Effect        string `json:"effect" doc:"of a firing: all effects besides the alert, separated by commas; else the one effect"`
	Status        string `json:"status" doc:"fired, done or failed"`
	FailureReason string `json:"failure_reason" doc:"why the effect was not done; empty: it was"`
	Revision      string `json:"revision" doc:"revision of the event that the rule fired on"`
}

// Definition describes one type of event.
type Definition struct {
	Type    Type
	About   string      // free text: when the event is announced
	Kind    schema.Kind // kind of the resource
	Status  string      // announced phase of that kind; "": independent of phases
	Payload any         // zero value of the payload's type
}

// Definitions returns all events, without duplicates.
func Definitions() []Definition {
	return []Definition{
		{EntitlementUpdated, "A project may use an app from now on, on other terms, or no longer.", schema.KindEntitlement, "",
			Entitlement{}},
		{InstanceRequested, "An instance is declared and in force; nothing is made of it yet.", schema.KindInstance, "requested",
			Instance{}},
		{InstanceRunning, "An instance is as declared, and serves.", schema.KindInstance, "running", Instance{}},
		{InstanceFailed, "Something went wrong with an instance; it is tried again unless its status says otherwise.", schema.KindInstance,
			"failed", Instance{}},
		{InstanceDeleting, "An instance is declared no longer, and is being taken away.", schema.KindInstance, "deleting", Instance{}},
		{InstanceDeleted, "Nothing is left of an instance.", schema.KindInstance, "deleted", Instance{}},
		{InstanceSuspended, "An instance is left alone from now on: a document says suspend: true, or the estate is paused.",
			schema.KindInstance, "", Suspension{}},
		{InstanceResumed, "An instance is no longer left alone: neither a document nor a pause of the estate suspends it.",
			schema.KindInstance, "", Suspension{}},
		{MembersMoved, "Members of a unit got other nodes: after a change or an operation, or because their nodes are lost.",
			schema.KindInstance, "", Moved{}},
		{JobsLost, "The scheduler does not know jobs any more that it lost in a crash; they have ended.", schema.KindInstance, "",
			LostJobs{}},
		{ArtifactRegistered, "An artifact was found at its source with the digest that is declared.", schema.KindArtifact, "registered",
			Artifact{}},
		{ArtifactPromoted, "An artifact is what new instances use.", schema.KindArtifact, "promoted", Artifact{}},
		{ArtifactDeprecated, "An artifact still works and should not be used for anything new.", schema.KindArtifact, "deprecated",
			Artifact{}},
		{ArtifactRetired, "An artifact may be used no longer.", schema.KindArtifact, "retired", Artifact{}},
		{SharedRuntimeRequested, "A shared runtime is declared and in force; nothing is made of it yet.", schema.KindSharedRuntime,
			"requested", SharedRuntime{}},
		{SharedRuntimeRunning, "A shared runtime is as declared, and serves.", schema.KindSharedRuntime, "running", SharedRuntime{}},
		{SharedRuntimeFailed, "Something went wrong with a shared runtime.", schema.KindSharedRuntime, "failed", SharedRuntime{}},
		{SharedRuntimeDeleting, "A shared runtime is declared no longer, and is being taken away.", schema.KindSharedRuntime, "deleting",
			SharedRuntime{}},
		{SharedRuntimeDeleted, "Nothing is left of a shared runtime.", schema.KindSharedRuntime, "deleted", SharedRuntime{}},
		{AttachmentRequested, "A project is declared to be attached to a shared runtime; it cannot use it yet.", schema.KindAttachment,
			"requested", Attachment{}},
		{AttachmentAttached, "A project may use a shared runtime on the terms declared.", schema.KindAttachment, "attached", Attachment{}},
		{AttachmentFailed, "A project could not be attached, or not be detached.", schema.KindAttachment, "failed", Attachment{}},
		{AttachmentDetached, "A project can use a shared runtime no longer.", schema.KindAttachment, "detached", Attachment{}},
		{OperationRequested, "An operation on a unit is in force, or was requested; nothing is done yet.", schema.KindMemberOperation,
			"requested", Operation{}},
		{OperationDone, "An operation was done. It is never done again.", schema.KindMemberOperation, "done", Operation{}},
		{OperationFailed, "An operation failed. It is not tried again.", schema.KindMemberOperation, "failed", Operation{}},
		{OperationExpired, "An operation could not start within a day, or a later one asks for the opposite: it is not done any more.",
			schema.KindMemberOperation, "expired", Operation{}},
		{RetryTriggered, "An operation began a new attempt of a unit that had failed.", schema.KindMemberOperation, "", Operation{}},
		{NodeReady, "The host of a node answers: for the first time, or again.", schema.KindNode, "ready", Node{}},
		{NodeNotReady, "The host of a node gives no usable answer.", schema.KindNode, "not_ready", Node{}},
		{NodeUnknown, "The host of a node is silent for long, and its scheduler does not say that it is gone.", schema.KindNode, "unknown",
			Node{}},
		{NodeLost, "The host of a node is silent for long, and its scheduler says that it does not respond.", schema.KindNode, "lost",
			Node{}},
		{QueueModeChanged, "A queue map has another mode, is new, or is deleted.", schema.KindQueueMap, "", QueueMap{}},
		{QueueRollbackBegan, "A queue map declares a rollback from now on, or renews it with another last day.", schema.KindQueueMap, "",
			QueueMap{}},
		{QueueRollbackExpired, "The last day of a rollback is over. The mode stays until somebody renews or removes the rollback.",
			schema.KindQueueMap, "", QueueMap{}},
		{QueueRollbackEnded, "A queue map declares no rollback any more, or is deleted.", schema.KindQueueMap, "", QueueMap{}},
		{NodeThresholdExceeded, "A metric of a node was beyond the threshold of a rule for the time that the rule states.",
			schema.KindNode, "", NodeThreshold{}},
		{NodeThresholdEnded, "A metric of a node is within the threshold of a rule again.", schema.KindNode, "", NodeThreshold{}},
		{ConditionChanged, "A condition that a rule names has another status than before. Other conditions have no event.",
			schema.KindInstance, "", Condition{}},
		{RuleFired, "A rule fired. An alert has no other effect than this event and a line in the log.", schema.KindHookRule, "", Rule{}},
		{RuleDone, "An effect of a rule was done. It is never done again.", schema.KindHookRule, "", Rule{}},
		{RuleFailed, "An effect of a rule was refused or failed. It is not tried again.", schema.KindHookRule, "", Rule{}},
	}
}

// EngineName returns the name that the design of scheduler engines (SDV) gives an event; "": it has none. NodeUnknown has none:
// that design knows no silence that is no loss.
func (t Type) EngineName() string {
	return map[Type]string{
		NodeReady: "NodeReady", NodeNotReady: "NodeNotReady", NodeLost: "NodeLost",
		InstanceRunning: "WorkloadScheduled", InstanceFailed: "WorkloadFailed", RetryTriggered: "RetryTriggered",
		MembersMoved: "Rescheduled",
	}[t]
}

// IsFailure reports whether the event says that its resource failed, as rules of repeated failures count them.
func (d Definition) IsFailure() bool { return d.Status == "failed" }

// IsEnd reports whether the event is the last one about its resource.
func (d Definition) IsEnd() bool { return d.Status == "deleted" || d.Status == "detached" }

// IsOfRule reports whether the event is about a rule. No rule fires on it.
func (t Type) IsOfRule() bool { return t == RuleFired || t == RuleDone || t == RuleFailed }

// Of returns the event for a phase of a kind. Some phases, such as deploying, have none.
func Of(kind schema.Kind, phase string) (Definition, bool) {
	if phase == "" {
		return Definition{}, false
	}
	for _, d := range Definitions() {
		if d.Kind == kind && d.Status == phase {
			return d, true
		}
	}
	return Definition{}, false
}

// ID returns the event_id. It depends on the event and the resource, not on the time, so
// an event announced again after a crash has the same id. attempt distinguishes events of one
// type about one resource at one revision: that of the unit, or another number that is different for each, such as a job's.
func ID(t Type, about schema.Key, revision string, attempt int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s\n%d\n", t, about, revision, attempt))
	return hex.EncodeToString(sum[:])[:32]
}

//go:embed asyncapi.yaml schemas/*.json
var published embed.FS

// Published returns the files that describe the events for readers, by name:
// asyncapi.yaml, which refers to schemas/<type>.json.
func Published() (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, dir := range []string{".", "schemas"} {
		entries, err := published.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.IsDir() {
				continue
			}
			name := e.Name()
			if dir != "." {
				name = dir + "/" + name
			}
			if out[name], err = published.ReadFile(name); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}
