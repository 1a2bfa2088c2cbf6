package slurm

import (
	"maps"
	"slices"
	"time"

	"berth/reconciler/plan"
	"berth/runtimes/slurm/cluster"
)

// journal has the unverified steps of a change of files: each is recorded before its effect. The package comment draws its states.
type journal struct {
	// Writing is the input of the files of an unfinished change; nil: no change is unfinished. Each file on the host is rendered from
	// Files or from Writing.
	Writing *fileInput `json:"writing,omitempty"`
	// Owed are the steps that have to follow written files and started daemons, without Workers.
	Owed cluster.Steps `json:"owed,omitzero"`
	// RestartDue are the nodes whose slurmd has to restart if it runs.
	RestartDue []string `json:"restart_due,omitempty"`
}

// with returns a journal with more steps. nodes are those whose slurmd Workers restarts.
func (j journal) with(more cluster.Steps, nodes []string) journal {
	if more.Workers {
		j.RestartDue = slices.Compact(slices.Sorted(slices.Values(slices.Concat(j.RestartDue, nodes))))
	}
	more.Workers = false
	j.Owed = j.Owed.Or(more)
	return j
}

// equal reports whether two journals are equal.
func (j journal) equal(o journal) bool {
	return j.Owed == o.Owed && j.Writing == o.Writing && slices.Equal(j.RestartDue, o.RestartDue)
}

// removals are what is no longer wanted and waits for its jobs.
type removals struct {
	cluster.PendingRemovals
	// Closing has the time from which a target takes no more jobs, by its name (nodeTarget, partitionTarget, …). It survives a
	// restart of the daemon, or a deadline would never be reached.
	Closing map[string]time.Time `json:"closing,omitempty"`
}

// closing reports whether target is being closed.
func (r *removals) closing(target string) bool {
	_, ok := r.Closing[target]
	return ok
}

// reopen removes targets from Closing.
func (r *removals) reopen(targets ...string) {
	r.Closing = maps.Clone(r.Closing)
	for _, t := range targets {
		delete(r.Closing, t)
	}
}

// leaves reports whether a partition, undeclared by now, still has running jobs.
func (r *removals) leaves(partition string) bool {
	return slices.Contains(cluster.PartitionNames(r.Leaving), partition)
}

// closes reports whether a partition is being closed.
func (r *removals) closes(partition string) bool {
	return r.leaves(partition) || r.closing(partitionTarget(partition))
}

// starts are the starts of daemons that are not verified yet, and what the next ones need of them.
type starts struct {
	// Anew: slurmctld may start without its state, because a person accepted the loss. It ends when slurmctld serves.
	Anew bool `json:"anew,omitempty"`
	// UsageAbandoned: a stop or deletion goes on without accounting, because a person gave up the usage that berth/status lacks. It ends
	// when accounting serves.
	UsageAbandoned bool `json:"usage_abandoned,omitempty"`
	// Raised: slurmctld has not served since FirstJob was raised. The jobs that its crash lost are ended when it serves.
	Raised bool `json:"raised,omitempty"`
	// FirstJob is higher than the ids of jobs before the last crash of slurmctld; 0: it had none.
	FirstJob int `json:"first_job,omitempty"`
	// Hung has the time of the last restart of each daemon that did not answer.
	Hung map[string]time.Time `json:"hung,omitempty"`
}

// operations are those of people at members. An operation goes from Restarting, where it restarts a daemon, to Done.
type operations struct {
	// Restarting has the process of the daemon before its restart, by the id of the operation.
	Restarting map[string]int `json:"restarting,omitempty"`
	// Done are the ids of the operations that were done, the newest last. None is done again.
	Done []string `json:"done_operations,omitempty"`
	// Marked has what operations changed at nodes in the last minutes, by node.
	Marked map[string]nodeMark `json:"marked_nodes,omitempty"`
}

// nodeMark is what an operation changed at a node. slurmctld writes it down some seconds later: if it
// is killed before, the mark brings it back. Later, only people change it.
type nodeMark struct {
	Drain   string    `json:"drain,omitempty"`   // reason
	Resume  bool      `json:"resume,omitempty"`  // the drain of an operation was undone
	Comment string    `json:"comment,omitempty"` // labels
	At      time.Time `json:"at"`
}

// markLife is how long slurmctld may take to write a change down. It saves within 5 s.
const markLife = time.Minute

// labelMark begins the comment of a node whose labels operations set.
const labelMark = "berth:"

// fileInput is the changeable part of the input from which the files of a control stack are
// rendered.
type fileInput struct {
	Unit plan.Unit `json:"unit"`
	cluster.JoinedWorkers
	cluster.PendingRemovals
	FirstJob int `json:"first_job,omitempty"`
}

// Targets that can be closing (record.Closing).
func nodeTarget(node string) string { return "node " + node }

func userTarget(user string) string { return "user " + user }

func accountTarget(name string) string { return "account " + name }

func qosTarget(name string) string { return "QoS " + name }

func partitionTarget(name string) string { return "partition " + name }
