// Package audit holds the audit record: who did what by which permission, what
// was decided by which rule, and the hash chain that shows a record changed,
// missing or added (requirements A12, B2; DESIGN §3).
//
// The package is pure. It must not know Git, files, a forge or the time.
package audit

import (
	"time"

	"berth/schema"
)

// Verdict is the outcome of the action in an audit record.
type Verdict string

// Allowed came into force or was done; Denied was refused for lack of
// authority; Held waits for another reason; Failed was tried and failed.
const (
	Allowed Verdict = "allowed"
	Denied  Verdict = "denied"
	Held    Verdict = "held"
	Failed  Verdict = "failed"
)

// Record is one privileged action and what was decided about it. A line of
// audit/…/*.jsonl on berth/status.
type Record struct {
	RecordID      string     `json:"record_id"` // hash of what happened: the same decision made again after a crash has the same id; of a read that was allowed, a random one
	OccurredAt    time.Time  `json:"occurred_at"`
	CorrelationID string     `json:"correlation_id"`
	Actor         string     `json:"actor"`                 // login or service account; "" is nobody, "berth" is Berth itself
	Proof         string     `json:"proof,omitempty"`       // how that is known: pull_request, signature, token
	Approvers     []string   `json:"approvers,omitempty"`   //
	Permission    string     `json:"permission,omitempty"`  // permission key
	Action        string     `json:"action"`                // such as document.added, document.modified, document.deleted, runtime.create
	Key           schema.Key `json:"key"`                   //
	File          string     `json:"file,omitempty"`        // of the estate; of api.read, which is about none, method and path template
	OrgID         string     `json:"org_id,omitempty"`      //
	ProjectID     string     `json:"project_id,omitempty"`  //
	AppSlug       string     `json:"app_slug,omitempty"`    // app of what Key names; "" where it is of none or not known
	Verdict       Verdict    `json:"verdict"`               //
	Rule          string     `json:"rule,omitempty"`        // role, policy key or code that decided
	Source        string     `json:"source,omitempty"`      // file:line of the policy layer or role binding
	Reason        string     `json:"reason,omitempty"`      // for people; never a secret
	BreakGlass    bool       `json:"break_glass,omitempty"` //
	Commit        string     `json:"commit"`                // of main
	Base          string     `json:"base,omitempty"`        // of berth/in-force, whose rules decided
	PullRequest   int        `json:"pull_request,omitempty"`

	// The chain. Written by the one writer of berth/status.
	Sequence uint64 `json:"sequence"` // from 1, without gaps
	Previous string `json:"previous"` // Hash of the record before; "" for the first
	Hash     string `json:"hash"`     // sha256 hex over the canonical JSON of the record without hash
}
