// Package cli says how Slurm's tools are called and what their answers mean, by the
// version of the installed tools. Everything that differs between versions is in the
// table in releases.go.
//
// An answer counts only if its exit status is known, it parses, and it has its key: the
// field or the heading under which the tool lists what was asked for. Any other answer
// is an error, never an empty list.
//
// It must not know a host: it gets bytes and exit statuses, and returns typed answers.
package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Answer is the output of a tool, with its exit status.
type Answer struct {
	Exit           int
	Stdout, Stderr []byte
}

// Query is a call of a tool that has no effect, with the decoder of its answer.
type Query[T any] struct {
	Program string
	Args    []string
	decode  func(Answer) (T, error)
}

// With returns the query with further arguments.
func (q Query[T]) With(args ...string) Query[T] {
	q.Args = slices.Concat(q.Args, args)
	return q
}

// Decode returns the typed answer. The error names the call.
func (q Query[T]) Decode(a Answer) (T, error) {
	v, err := q.decode(a)
	if err != nil {
		var none T
		return none, fmt.Errorf("%s %s: %w", q.Program, strings.Join(q.Args, " "), err)
	}
	return v, nil
}

// query returns a query whose answer counts only with exit status 0.
func query[T any](decode func([]byte) (T, error), program string, args ...string) Query[T] {
	return Query[T]{program, args, func(a Answer) (T, error) {
		if a.Exit != 0 {
			var none T
			return none, a.failure()
		}
		return decode(a.Stdout)
	}}
}

// ErrExit: a tool failed, such as one whose daemon does not answer.
var ErrExit = errors.New("exit status")

// failure is the error of a tool that failed.
func (a Answer) failure() error {
	text := strings.TrimSpace(string(a.Stderr) + "\n" + string(a.Stdout))
	if len(text) > 600 {
		text = text[:600] + "…"
	}
	return fmt.Errorf("%w %d: %s", ErrExit, a.Exit, text)
}

// Node is a node as slurmctld has it.
type Node struct {
	Name  string
	State string   // base state in lower case: idle, mixed, allocated, down, error, future, unknown, invalid
	Flags []string // in upper case: DRAIN, NOT_RESPONDING, COMPLETING, INVALID_REG…
	NodeReason
	Comment    string // written by a person or by an operation
	Gres       string // as configured: gpu:a100:2(S:0-1)
	Features   []string
	Partitions []string
	Weight     int // Slurm takes nodes of a lower one first
	CPUs       int
	AllocCPUs  int    // of running jobs
	Memory     int    // MiB
	Version    string // of slurmd; empty before it registers
	Booted     int64  // when its host booted, seconds since 1970; 0: unknown
	Address    string // to which slurmctld connects; empty: unknown
}

// NodeReason says why a node is out of service.
type NodeReason struct {
	Reason   string // written by a person or by Slurm
	ReasonBy string // the user who wrote it; slurm and root are also Slurm and Berth
	ReasonAt int64  // since the epoch; 0: unknown
}

// Has reports whether the node has a flag.
func (n *Node) Has(flag string) bool { return slices.Contains(n.Flags, flag) }

// Registered reports whether the node's slurmd is registered and responds.
func (n *Node) Registered() bool {
	return !n.Has("NOT_RESPONDING") && !n.Has("INVALID_REG") && slices.Contains([]string{"idle", "mixed", "allocated"}, n.State)
}

// Queued is a job in the queue, without fields that users write.
type Queued struct {
	// ID is 12, or 12_3 of a task of an array. The tasks that wait together have that of
	// the array: a call for it is for all tasks, also those that run.
	ID string
	// Tasks are ids that select only tasks that wait, such as 12_[3-9] for tasks that are listed together; otherwise
	// ID. It is empty if squeue cut off the list.
	Tasks []string
	State string // compact: PD, R, CG, S…
	UID   int
	// Partitions are those of the submission while the job is pending, and otherwise
	// the one where it runs.
	Partitions []string
}

// Pending reports whether the job waits.
func (q Queued) Pending() bool { return waits(q.State) }

// waits reports whether a job in a compact state waits: squeue shows why a job is held, or
// waits again, instead of PD (squeue(1), JOB STATE CODES).
func waits(state string) bool {
	return slices.Contains([]string{"PD", "SE", "RH", "RD", "RF", "RV"}, state)
}

// QueuedJob is a line of squeue without text that users write: a job, a part of a heterogeneous job, a
// task of an array, or its tasks that wait together.
type QueuedJob struct {
	ID         string // as squeue prints %i: 12, 12+1 of a part, 12_3 of a task, 12_[4-9] of several
	Raw        string // its number at slurmctld; tasks that wait together have that of the array
	Tasks      int    // how many wait together; otherwise 1
	State      string // as in Queued
	User       string
	Account    string
	QoS        string
	Partitions []string // as in Queued
	Nodes      []string // where it runs
	Reason     string   // for waiting, as squeue prints it: launch failed requeued held
	Asks       Asked
	Minutes    int   // its time limit; 0: none
	Started    int64 // seconds since 1970; 0: it waits, or is not known
	Unread     bool  // a field could not be read, and is empty
}

// Asked lists the resources that a running job has, or a waiting one asks for.
type Asked struct {
	GPUs, CPUs int      // on all its nodes together
	Nodes      int      // how many
	Named      []string // nodes that it asks for by name, sorted
	Allowed    []string // nodes that it does not exclude, if it excludes some by name
	Each       EachNode
}

// EachNode is the least that each node of a job must have. A zero value asks for nothing, or is not known.
type EachNode struct {
	CPUs      int
	MemoryMiB int // for one CPU, if the job asks by CPU
	GPUs      int
	GPUType   string   // "": any
	Features  []string // all of them, sorted; none where the job names alternatives
}

// Pending reports whether the job waits.
func (q *QueuedJob) Pending() bool { return waits(q.State) }

// EndedJob is a job that ran and has ended, or a task of an array.
type EndedJob struct {
	ID    int   // of its own that each task of an array has, as in Run
	Ended int64 // seconds since 1970
}

// Partition is a partition as slurmctld has it.
type Partition struct {
	Name     string
	State    string   // UP, DOWN, DRAIN, INACTIVE
	Accounts []string // that it allows; nil: all
	QoS      []string // that it allows, denies or has itself; nil: none is named
	Nodes    []string
	Values   map[string]string // all fields, as scontrol prints them
}

// Reservation is a reservation of nodes as slurmctld has it.
type Reservation struct {
	Name         string
	Start, End   int64 // Unix time
	Nodes        []string
	Users, Flags []string
}

// Association gives a user, or with no user an account as a whole, access.
type Association struct{ Account, User string }

// Config is slurmctld's configuration.
type Config struct {
	// Matches says that the file of the asking host is the running configuration.
	Matches bool
	Version string // of the running slurmctld, not of the installed one
	NextJob int    // the id of the next job; 0: unknown
}

// Resources are the CPUs and memory of a host.
type Resources struct {
	CPUs   int
	Memory int // MiB
	// All are 0 if CPUs are not all threads of all cores.
	Sockets, CoresPerSocket, ThreadsPerCore int
}

// Run is a run of a job in the accounting database (sacct(1), --duplicates).
type Run struct {
	Cluster, Account, User, State string
	Partition, QoS                string // QoS "": it was deleted
	ID                            int
	TRES
	Submitted, Started, Ended int64 // seconds since 1970; 0: not yet
	Elapsed                   int64 // seconds that accounting counts: without suspensions, until now while it runs
	Nodes                     []string
	Unread                    []string // what of it could not be read, such as resources: the run cannot be billed
}

// TRES are the resources allocated to a run; all 0: nothing yet.
type TRES struct {
	CPUs, GPUs, MemoryMiB int
	GPUType               string // of all GPUs if Slurm accounts for types
	Billing               int
}

// Accounted is a job in the accounting database.
type Accounted struct {
	ID        int
	State     string // COMPLETED, FAILED…
	Reason    string // for waiting; None: none
	Nodes     string
	Comment   string // the owner's: untrusted text
	Submitted int64  // seconds since 1970
}
