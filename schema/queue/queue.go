// Package queue has the words of the queue of a running unit: jobs that people submit, read and
// cancel, and how a requested queue was resolved (requirements B1, C1 and C3).
//
// It must not know any scheduler, HTTP or the estate's documents: a runtime answers in these words.
package queue

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"berth/schema"
)

// The classes of errors (requirement C3). An error of a runtime's queue wraps exactly one of them,
// or ErrNotFound, ErrNoOutput or ErrConflict. Any other error is a fault of Berth.
var (
	// ErrConfiguration: the map of queues, or what it names at the runtime, is wrong. The same call
	// fails again until the platform corrects it.
	ErrConfiguration = errors.New("configuration error")
	// ErrDenied: the map of queues, or a limit of the scheduler, refuses the job.
	ErrDenied = errors.New("denied")
	// ErrUnavailable: the scheduler did not answer, or not in time. The same call may succeed later;
	// a submission with the same idempotency key never makes a second job.
	ErrUnavailable = errors.New("scheduler unavailable")
	// ErrNotFound: the project has no such job. A job of another project is not found either.
	ErrNotFound = errors.New("no such job")
	// ErrNoOutput: the job has no output file that its user may read. The same call fails again, unless
	// the job still writes it.
	ErrNoOutput = errors.New("no output")
	// ErrConflict: the idempotency key was used for another submission.
	ErrConflict = errors.New("idempotency key was used for another job")
)

// ClassOf names the class of an error, for logs.
func ClassOf(err error) string {
	for _, class := range []error{ErrConfiguration, ErrDenied, ErrUnavailable, ErrNotFound, ErrNoOutput, ErrConflict} {
		if errors.Is(err, class) {
			return class.Error()
		}
	}
	return "fault of Berth"
}

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

// Readiness says whether the queue of a project takes jobs, with the evidence (requirement C4).
type Readiness struct {
	Adapter         string     `json:"adapter"`
	ContractVersion string     `json:"contract_version"`
	QueueMap        string     `json:"queue_map"` // name; "": none applies to the project
	Serves          bool       `json:"serves"`
	Preconditions   []Evidence `json:"preconditions"`
}

// Evidence is the result of the check of one precondition.
type Evidence struct {
	Precondition string `json:"precondition"`
	Holds        bool   `json:"holds"`
	Seen         string `json:"seen"` // output of the check, such as the answer of a ping
}

// Submission is a batch job to submit. Zero values of Request are what the scheduler gives a job
// that asks for nothing.
type Submission struct {
	ProjectID      string          // <tenant>.<project>: whose job it is
	User           schema.UnixUser // runs the job
	IdempotencyKey string          // the same key of the same user and project never makes a second job
	CorrelationID  string          // of the call
	Request
}

// Request is the request of a person.
type Request struct {
	Queue       string `json:"queue,omitempty"`       // "": the default
	Name        string `json:"name,omitempty"`        // of the job
	Script      string `json:"script"`                // begins with #!
	ScriptName  string `json:"script_name,omitempty"` // of its file: the name of a job that names none
	WorkDir     string `json:"work_dir,omitempty"`
	Minutes     int    `json:"time_limit_minutes,omitempty"`
	Nodes       int    `json:"nodes,omitempty"`
	Tasks       int    `json:"tasks,omitempty"`
	CPUsPerTask int    `json:"cpus_per_task,omitempty"`
	MemoryMiB   int    `json:"memory_mib,omitempty"` // of each node
	GPUs        int    `json:"gpus,omitempty"`       // of each node
}

// Digest identifies a request: another request with the same idempotency key is ErrConflict.
func (r Request) Digest() string {
	r.ScriptName = ""          // the same script from another file is the same request
	text, _ := json.Marshal(r) // plain values encode
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// Bounds of a Request.
const (
	MaxScript  = 4 << 20 // bytes
	MaxMinutes = 366 * 24 * 60
	maxCount   = 1 << 20
)

var (
	jobName        = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9_.]{0,63}$`)
	queueName      = regexp.MustCompile(`^[A-Za-z0-9_][-A-Za-z0-9_.]{0,63}(,[A-Za-z0-9_][-A-Za-z0-9_.]{0,63}){0,9}$`) // sbatch takes a list
	directory      = regexp.MustCompile(`^(/[A-Za-z0-9_][-A-Za-z0-9_.]*){1,16}$`)
	idempotencyKey = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	jobID          = regexp.MustCompile(`^[1-9][0-9]{0,9}(_[0-9]{1,7}|\+[0-9]{1,4})?$`)
)

// CheckKey checks an idempotency key.
func CheckKey(key string) error {
	if !idempotencyKey.MatchString(key) {
		return fmt.Errorf("%w: the idempotency key must have 1 to 64 letters, digits, dots, dashes or underscores", ErrDenied)
	}
	return nil
}

// keyTime is the form of the time in a key.
const keyTime = "20060102T150405Z"

// NewKey returns a key with the time when it was made and a random part. A runtime may spare a search
// among ended jobs for a key with a recent time: a job with this key cannot have ended long ago.
func NewKey(now time.Time, random string) string {
	return now.UTC().Format(keyTime) + "-" + strings.ToLower(random)
}

// aheadBy is how much the clock of the caller that made a key may be ahead.
const aheadBy = 10 * time.Second

// MadeWithin reports whether NewKey made a key at most age before now. A key of a clock that is further ahead may
// be of any time.
func MadeWithin(key string, now time.Time, age time.Duration) bool {
	text, _, _ := strings.Cut(key, "-")
	made, err := time.Parse(keyTime, text)
	return err == nil && now.Sub(made) < age-aheadBy && made.Sub(now) < aheadBy
}

// Check checks what needs no scheduler. The error wraps ErrDenied.
func (r Request) Check() error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrDenied, fmt.Sprintf(format, args...))
	}
	switch {
	case len(r.Script) > MaxScript:
		return refuse("the script has %d bytes and may have %d", len(r.Script), MaxScript)
	case strings.HasPrefix(r.Script, "\ufeff"):
		return refuse("the script begins with a byte order mark (U+FEFF), which an editor does not show: save it as UTF-8 without one")
	case !utf8.ValidString(r.Script):
		return refuse("the script is not UTF-8 at line %d: convert it, such as with iconv",
			1+strings.Count(r.Script[:invalidAt(r.Script)], "\n"))
	case len(r.Script) < 3 || r.Script[:2] != "#!":
		return refuse("the script must begin with #!, such as #!/bin/sh")
	case r.Name != "" && !jobName.MatchString(r.Name):
		return refuse("the name of a job has 1 to 64 letters, digits, dots, dashes and underscores, and begins with a letter or digit")
	case r.ScriptName != "" && !jobName.MatchString(r.ScriptName):
		return refuse("script_name has 1 to 64 letters, digits, dots, dashes and underscores, and begins with a letter or digit")
	case r.Queue != "" && !IsName(r.Queue):
		return refuse("the name of a queue has 1 to 64 letters, digits, dots, dashes and underscores, and begins with a letter, digit or " +
			"underscore; commas separate several")
	case r.WorkDir != "" && !directory.MatchString(r.WorkDir):
		return refuse("work_dir must be an absolute path of letters, digits, dots, dashes and underscores")
	case r.Minutes > MaxMinutes:
		return refuse("time_limit_minutes is at most %d", MaxMinutes)
	}
	for name, n := range map[string]int{
		"time_limit_minutes": r.Minutes, "nodes": r.Nodes, "tasks": r.Tasks, "cpus_per_task": r.CPUsPerTask, "memory_mib": r.MemoryMiB,
		"gpus": r.GPUs,
	} {
		if n < 0 || name != "memory_mib" && n > maxCount {
			return refuse("%s is from 0 to %d", name, maxCount)
		}
	}
	return nil
}

// IsName reports whether a text has the form of the name of a queue, or of several with commas between them.
func IsName(text string) bool { return queueName.MatchString(text) }

// invalidAt returns where a text is not UTF-8.
func invalidAt(text string) int {
	for i, c := range text {
		if c == utf8.RuneError && !strings.HasPrefix(text[i:], string(utf8.RuneError)) {
			return i
		}
	}
	return 0
}

// Durability says whether a crash of the scheduler may lose a submitted job.
type Durability string

// The values. A scheduler may lose an accepted job if it crashes. A durable job is on its disk.
const (
	Accepted Durability = "accepted"
	Durable  Durability = "durable"
)

// Ref names a job. A scheduler may use an id again, so Submitted belongs to the name. If it is zero,
// the id names the last job with this id.
type Ref struct {
	JobID     string // 12, 12_3 for a task of an array, or 12+1 for a part of a heterogeneous job
	Submitted time.Time
}

// Check checks the form of the id.
func (r Ref) Check() error {
	if !jobID.MatchString(r.JobID) {
		return ErrNotFound
	}
	return nil
}

// Job is a job of a project.
type Job struct {
	JobID          string      `json:"job_id"`
	Submitted      time.Time   `json:"submitted_at"`
	ProjectID      string      `json:"project_id"`
	User           string      `json:"user"`
	Name           string      `json:"name,omitempty"`
	Queue          string      `json:"queue,omitempty"` // at the scheduler, such as a partition
	State          string      `json:"state"`           // in the scheduler's words, such as PENDING
	Reason         string      `json:"reason,omitempty"`
	IdempotencyKey string      `json:"idempotency_key,omitempty"`
	Durability     Durability  `json:"durability,omitempty"`
	Resolution     *Resolution `json:"resolution,omitempty"` // in the answer to a submission
	Run
}

// Run is where and how long a job ran, with what.
type Run struct {
	Started   time.Time `json:"started_at,omitzero"`
	Ended     time.Time `json:"ended_at,omitzero"`
	Members   []string  `json:"members,omitempty"` // of the unit, such as worker-0
	ExitCode  string    `json:"exit_code,omitempty"`
	CPUs      int       `json:"cpus,omitempty"`
	GPUs      int       `json:"gpus,omitempty"`
	MemoryMiB int       `json:"memory_mib,omitempty"`
	Minutes   int       `json:"time_limit_minutes,omitempty"`
}

// Output is the end of a job's standard output.
type Output struct {
	Text      []byte
	Truncated bool // Text is not all of it
}

// MaxOutput bounds Output.Text in bytes.
const MaxOutput = 256 << 10

// Node is a node of a unit. A project knows it as a member; its name is the platform's.
type Node struct {
	Member string   `json:"member"`
	Node   string   `json:"node,omitempty"`
	State  []string `json:"state"` // in the scheduler's words
	Reason string   `json:"reason,omitempty"`
	CPUs   int      `json:"cpus"`
	GPUs   int      `json:"gpus,omitempty"`
}

// Observation states when a unit was read. The current state of the unit may differ.
type Observation struct {
	ObservedAt time.Time `json:"observed_at"` // when the reading began, UTC
	AgeSeconds int       `json:"age_seconds"` // of the answer
}

// JobList is a list of jobs at one observation, in the order of ids.
type JobList struct {
	Observation
	Items []Job `json:"items"`
}

// ObservedJob is a job at an observation.
type ObservedJob struct {
	Job
	Observation
}

// NodeList is a list of nodes at one observation, by member.
type NodeList struct {
	Observation
	Items []Node `json:"items"`
}
