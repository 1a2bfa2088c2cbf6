package runtimes

import (
	"context"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/queue"
)

// Queue is what a Runtime also implements whose units queue jobs. Each method asks the running unit
// and keeps nothing. An error wraps an error of package queue. Stamp goes into the host's ledger
// with every effect.
type Queue interface {
	// Submit submits a job as the caller's own Unix user. A submission with a key that was used
	// before returns the job of the earlier one, whether or not its answer arrived.
	Submit(ctx context.Context, at QueueScope, stamp Stamp, s queue.Submission) (queue.Job, error)
	// Jobs lists the project's jobs that the scheduler still knows, oldest first.
	Jobs(ctx context.Context, at QueueScope, by queue.Caller) ([]queue.Job, error)
	// Job returns one job of the project, also one that has ended if accounting knows it.
	Job(ctx context.Context, at QueueScope, by queue.Caller, ref queue.JobRef) (queue.Job, error)
	// Cancel ends a job of the project, after it has read the job's identity again.
	Cancel(ctx context.Context, at QueueScope, stamp Stamp, by queue.Caller, ref queue.JobRef) (queue.Job, error)
	// Output returns the end of the job's standard output, read as the job's user.
	Output(ctx context.Context, at QueueScope, stamp Stamp, by queue.Caller, ref queue.JobRef, limit int) (queue.Output, error)
	// Nodes lists the workers of the unit.
	Nodes(ctx context.Context, at QueueScope) ([]queue.Node, error)
}

// QueueScope is the unit whose queue is asked, as it was applied last, and the map of queues in
// force for the caller's project; nil: none applies.
type QueueScope struct {
	Unit *plan.Unit
	Map  *schema.QueueMap
}
