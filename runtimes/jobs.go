package runtimes

import (
	"context"
	"time"

	"berth/reconciler/plan"
	"berth/schema"
)

// Jobs is implemented by a Runtime whose units run jobs.
type Jobs interface {
	// Submit submits a script as its owner and returns the job's id. The unit runs
	// the script as that user. After ErrUncertain the job may have been submitted.
	Submit(ctx context.Context, u *plan.Unit, stamp Stamp, spec JobSpec) (id string, err error)
	// Job reads one job of the unit.
	Job(ctx context.Context, u *plan.Unit, id string) (Job, error)
}

// JobSpec is a job to submit.
type JobSpec struct {
	User   schema.UnixUser // one of the unit's users
	Name   string          // letters, digits, dot, dash, underscore
	Script []byte          // with its #! line
	GPUs   int             // per node; 0: none
	Nodes  int             // 0: one
	Output string          // absolute path of the output on the node; empty: none
}

// JobState is the state of a job.
type JobState string

// The states of a job.
const (
	JobPending   JobState = "pending"
	JobRunning   JobState = "running"
	JobCompleted JobState = "completed" // succeeded
	JobFailed    JobState = "failed"    // failed or was cancelled
)

// Job is a job in a unit. After a crash an id may be reused, so a job is identified by
// ID and Submitted together.
type Job struct {
	ID        string    `json:"id"`
	State     JobState  `json:"state"`
	Detail    string    `json:"detail,omitempty"` // in the runtime's terms, such as COMPLETED or Resources
	Nodes     []string  `json:"nodes,omitempty"`
	Comment   string    `json:"comment,omitempty"` // from the job or its owner: untrusted text
	Submitted time.Time `json:"submitted,omitzero"`
}
