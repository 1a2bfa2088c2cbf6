// Package audit holds the audit record: actor, action, permission, decision and rule.
// The hash chain shows each changed, missing or added record (requirements A12, B2).
//
// The package is pure. It must not know Git, files, a forge or the time.
package audit

import (
	"time"

	"berth/schema"
)

// Verdict is the outcome of the action in an audit record.
type Verdict string

// Allowed came into force or was done. Denied lacks a permission. Held waits for another
// reason. Failed was tried and failed.
const (
	Allowed Verdict = "allowed"
	Denied  Verdict = "denied"
	Held    Verdict = "held"
	Failed  Verdict = "failed"
)

// Record is one privileged action and the decision about it: a line of audit/…/*.jsonl
// on berth/status.
type Record struct {
	// hash of the action: a decision repeated after a crash has the same id; random for an allowed read
	RecordID      string    `json:"record_id"`
	OccurredAt    time.Time `json:"occurred_at"`
	CorrelationID string    `json:"correlation_id"`
	Author
	Permission string `json:"permission,omitempty"` // permission key
	Action     string `json:"action"`               // such as document.added, document.modified, document.deleted, runtime.create
	Resource
	Outcome
	Change
	Link
}

// Author is who acts.
type Author struct {
	Actor     string   `json:"actor"`           // login or service account; "": unknown, "berth": Berth itself
	Proof     string   `json:"proof,omitempty"` // proof of the actor: pull_request, signature, token
	Approvers []string `json:"approvers,omitempty"`
	// Operator is the service account under which Berth had an effect, and Credential the id of its
	// short-lived credential, as in the host's ledger.
	Operator   string `json:"operator,omitempty"`
	Credential string `json:"credential,omitempty"`
}

// Resource is the resource that an action concerns.
type Resource struct {
	Key       schema.Key `json:"key"`
	File      string     `json:"file,omitempty"` // file of the estate; for api.read, which has no file, method and path template
	OrgID     string     `json:"org_id,omitempty"`
	ProjectID string     `json:"project_id,omitempty"`
	AppSlug   string     `json:"app_slug,omitempty"` // app of the resource in Key; "" without an app or if unknown
}

// About returns the resource of a key. Its org is the tenant of the key.
func About(key schema.Key, app string) Resource {
	return Resource{Key: key, OrgID: key.Tenant, ProjectID: key.ProjectID(), AppSlug: app}
}

// Outcome is the decision about an action.
type Outcome struct {
	Verdict    Verdict `json:"verdict"`
	Rule       string  `json:"rule,omitempty"`   // deciding role, policy key or code
	Source     string  `json:"source,omitempty"` // file:line of the policy layer or role binding
	Reason     string  `json:"reason,omitempty"` // free text; never a secret
	BreakGlass bool    `json:"break_glass,omitempty"`
}

// Change is the revision of the estate that an action belongs to.
type Change struct {
	Commit      string `json:"commit"`         // commit of main
	Base        string `json:"base,omitempty"` // commit of berth/in-force with the deciding rules
	PullRequest int    `json:"pull_request,omitempty"`
}

// Link is the place of a record in the chain. Only the writer of berth/status sets it.
type Link struct {
	Sequence uint64 `json:"sequence"` // from 1, without gaps
	Previous string `json:"previous"` // hash of the previous record; "" for the first
	Hash     string `json:"hash"`     // sha256 hex over the canonical JSON of the record without hash
}
