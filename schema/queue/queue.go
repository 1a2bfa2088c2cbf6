// Package queue has the words of the queue of a running unit: jobs that people submit, read and
// cancel, and the nodes that run them (requirement B1).
//
// It must not know any scheduler, HTTP or the estate's documents: a runtime answers in these words.
package queue

import (
	"errors"
	"time"

	"berth/schema"
)

// The classes of errors of the boundary (requirement C3), and a job that does not exist. Each error
// of a runtime's queue wraps exactly one of them; every other error is a fault of Berth.
var (
	// ErrConfiguration: the mapping of queues, or what it names at the runtime, is wrong. The
	// platform has to mend it; the same call fails again.
	ErrConfiguration = errors.New("configuration error")
	// ErrDenied: the mapping, or a limit of the scheduler, refuses the job.
	ErrDenied = errors.New("denied")
	// ErrUnavailable: the scheduler did not answer, or not in time. The same call with the same
	// idempotency key may be sent again and never doubles a job.
	ErrUnavailable = errors.New("scheduler unavailable")
	// ErrNotFound: the caller's project has no such job. A job of another project is not found too.
	ErrNotFound = errors.New("no such job")
	// ErrConflict: the idempotency key was used for another submission.
	ErrConflict = errors.New("idempotency key used for another job")
)

// Caller says for whom an operation on a queue is done.
type Caller struct {
	ProjectID string          // <tenant>.<project>: only its jobs exist
	User      schema.UnixUser // the person's account on the hosts; zero for a read without an account
	// Trace is the W3C trace id of the call, made from its correlation id.
	Trace         string
	CorrelationID string
}

// Submission is a batch job to submit.
type Submission struct {
	Caller
	IdempotencyKey string            // unique in the project and unit; at most 64 of A-Z a-z 0-9 . _ -
	Queue          string            // requested queue; "": the default
	Name           string            // of the job
	Script         []byte            // begins with #!; at most MaxScript
	Minutes        int               // time limit; 0: none asked
	Nodes          int               // 0: none asked
	Tasks          int               // 0: none asked
	CPUsPerTask    int               // 0: none asked
	MemoryMiB      int               // a node; 0: none asked
	GPUs           int               // 0: none
	Environment    map[string]string // of the job; nothing else is passed on
}

// MaxScript bounds a script in bytes.
const MaxScript = 1 << 20

// Durability says what a crash of the scheduler may do to a submitted job.
type Durability string

// The values. A scheduler may lose an accepted job in its last seconds before a crash; a durable
// one is on its disk.
const (
	Accepted Durability = "accepted"
	Durable  Durability = "durable"
)

// Resolution is the answer of the boundary to a requested queue (requirement C1), as it was when
// the job was submitted.
type Resolution struct {
	Adapter         string   `json:"adapter"`
	ContractVersion string   `json:"contract_version"`
	RequestedQueue  string   `json:"requested_queue"`
	ResolvedQueue   string   `json:"resolved_queue"`
	UsedFallback    bool     `json:"used_fallback"`
	Mapping         *Mapping `json:"mapping"`
}

// Mapping is what a queue is at the scheduler; nil in a Resolution: no map applies.
type Mapping struct {
	Queue              string `json:"queue"`
	Partition          string `json:"partition"`
	Account            string `json:"account"`
	QOS                string `json:"qos"`
	MaxWalltimeMinutes int    `json:"max_walltime_minutes"`
}

// Job is a job of a queue. Only JobID and Submitted together name it: a scheduler may reuse ids.
type Job struct {
	JobID          string      `json:"job_id"` // with _task for a task of an array
	Submitted      time.Time   `json:"submitted_at"`
	ProjectID      string      `json:"project_id"`
	User           string      `json:"user"`
	Name           string      `json:"name"`
	Queue          string      `json:"queue,omitempty"` // at the scheduler, such as a partition
	State          string      `json:"state"`           // in the words of the scheduler, such as PENDING
	Reason         string      `json:"reason,omitempty"`
	Nodes          []string    `json:"-"` // names of hosts; a project sees Members
	Members        []string    `json:"members,omitempty"`
	Started        time.Time   `json:"started_at,omitzero"`
	Ended          time.Time   `json:"ended_at,omitzero"`
	ExitCode       string      `json:"exit_code,omitempty"`
	CPUs           int         `json:"cpus,omitempty"`
	GPUs           int         `json:"gpus,omitempty"`
	MemoryMiB      int         `json:"memory_mib,omitempty"`
	Minutes        int         `json:"time_limit_minutes,omitempty"`
	IdempotencyKey string      `json:"idempotency_key,omitempty"`
	Durability     Durability  `json:"durability,omitempty"`
	Resolution     *Resolution `json:"resolution,omitempty"`
}

// JobRef names a job. Submitted is zero where a caller knows only the id: then the id alone counts,
// and a runtime refuses it with ErrConflict if the project has two such jobs.
type JobRef struct {
	JobID     string
	Submitted time.Time
}

// Output is the end of a job's standard output.
type Output struct {
	Data      []byte
	Size      int64 // of the whole file
	Truncated bool  // Data is not all of it
}

// MaxOutput bounds Output.Data in bytes.
const MaxOutput = 256 << 10

// Node is a node of a unit. A project sees Member only.
type Node struct {
	Member string   `json:"member"`
	Name   string   `json:"node,omitempty"`
	State  []string `json:"state"` // in the words of the scheduler
	Reason string   `json:"reason,omitempty"`
	CPUs   int      `json:"cpus"`
	GPUs   int      `json:"gpus,omitempty"`
	Jobs   int      `json:"jobs"` // running ones
}
