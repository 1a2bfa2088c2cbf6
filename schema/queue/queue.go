// Package queue has the words of a queue of jobs: how a requested queue was resolved, and the classes of
// errors (requirements C1 and C3).
//
// It must not know any scheduler, HTTP or the estate's documents: a runtime answers in these words.
package queue

import "errors"

// The classes of errors (requirement C3). An error of a runtime's queue wraps exactly one of them.
var (
	// ErrConfiguration: the map of queues, or what it names at the runtime, is wrong. The same call
	// fails again until the platform corrects it.
	ErrConfiguration = errors.New("configuration error")
	// ErrDenied: the map of queues, or a limit of the scheduler, refuses the job.
	ErrDenied = errors.New("denied")
	// ErrUnavailable: the scheduler did not answer, or not in time. The same call may succeed later.
	ErrUnavailable = errors.New("scheduler unavailable")
)

// Resolution is the answer of the boundary to a requested queue (requirement C1).
type Resolution struct {
	Adapter         string   `json:"adapter"`
	ContractVersion string   `json:"contract_version"`
	RequestedQueue  string   `json:"requested_queue"`
	ResolvedQueue   string   `json:"resolved_queue"`
	UsedFallback    bool     `json:"used_fallback"`
	Mapping         *Mapping `json:"mapping"`
}

// Mapping is the target of a queue at the scheduler. It is nil in a Resolution if no map applies.
type Mapping struct {
	Queue              string `json:"queue"`
	Partition          string `json:"partition"`
	Account            string `json:"account"`
	QOS                string `json:"qos"`
	MaxWalltimeMinutes int    `json:"max_walltime_minutes"`
}
