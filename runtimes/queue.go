package runtimes

import (
	"context"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/queue"
)

// Queue is the second interface of a Runtime whose units queue jobs (requirement B1). It keeps nothing. An error wraps
// one of package queue, except that of a host that knows a later leader (ErrStaleEpoch).
type Queue interface {
	QueueReader
	QueueActor
}

// QueueReader reads a running unit. Its lists are of the whole unit, so that one question serves all who look at it: the
// caller shows a project its own jobs only (queue.Job.ProjectID).
type QueueReader interface {
	// Jobs returns the jobs of all projects that the scheduler still has in its memory, in the order of ids. The
	// ProjectID of a job is the one that the scheduler's record names, and may be of no project of the estate.
	Jobs(ctx context.Context, u *plan.Unit, s Stamp) ([]queue.Job, error)
	// Job returns a job of the project, also one that is only in the accounting.
	Job(ctx context.Context, at QueueScope, ref queue.Ref) (queue.Job, error)
	// Nodes returns the nodes of the unit's members, by member.
	Nodes(ctx context.Context, u *plan.Unit, s Stamp) ([]queue.Node, error)
}

// QueueActor acts on a running unit for a person. It asks the unit on each call.
type QueueActor interface {
	// Submit submits a job as s.User. A submission with a key that this user used before in the same
	// project returns the job of the earlier one, also if its answer never arrived.
	Submit(ctx context.Context, at QueueScope, s queue.Submission) (queue.Job, error)
	// Cancel ends a job of the project, after it read the identity of the job.
	Cancel(ctx context.Context, at QueueScope, ref queue.Ref) (queue.Job, error)
	// Output returns at most limit bytes of the end of a job's standard output. It reads them as the
	// job's user.
	Output(ctx context.Context, at QueueScope, ref queue.Ref, limit int) (queue.Output, error)
	// Readiness checks the preconditions of the map's mode, as a submission does, and submits nothing. A
	// scheduler that does not answer is evidence and no error. The evidence names members and no hosts.
	Readiness(ctx context.Context, at QueueScope) (queue.Readiness, error)
}

// QueueScope is whose queue is asked.
type QueueScope struct {
	Unit *plan.Unit // last applied
	// ProjectID limits all calls to the jobs of this project.
	ProjectID string
	Map       *schema.QueueMap // in force for the project; nil: none
	// HasRunbook: people can read the map's runbook.
	HasRunbook bool
	Stamp      Stamp // for the ledger of hosts, with each effect
}
