package runtimes

import (
	"context"
	"time"

	"berth/reconciler/plan"
	"berth/schema"
)

// Jobs is what a Runtime offers besides if its units run jobs. It is found by
// a type assertion on the Runtime.
type Jobs interface {
	// Submit hands a script over as its owner and returns the job's id. The
	// script is run by the unit as that user, never by Berth. An error that is
	// ErrUncertain may have submitted all the same.
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
	Output string          // absolute path on the node its output goes to; empty: nowhere
}

// JobState is how a job is.
type JobState string

// The states of a job.
const (
	JobPending   JobState = "pending"
	JobRunning   JobState = "running"
	JobCompleted JobState = "completed" // ended well
	JobFailed    JobState = "failed"    // ended otherwise, or was cancelled
)

// Job is one job as its unit's runtime sees it. An id may come back for
// another job after a crash: a job is told by id and Submitted together.
type Job struct {
	ID        string    `json:"id"`
	State     JobState  `json:"state"`
	Detail    string    `json:"detail,omitempty"` // as the runtime says it, such as COMPLETED or Resources
	Nodes     []string  `json:"nodes,omitempty"`
	Comment   string    `json:"comment,omitempty"` // what the job or its owner noted on it: untrusted text
	Submitted time.Time `json:"submitted,omitzero"`
}
