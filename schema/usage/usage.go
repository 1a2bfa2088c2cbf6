// Package usage has the records of what jobs used: who used what, of which unit, and when. The
// records of a unit stay on berth/status when the unit is gone (requirements A13, D6).
//
// It must not know any scheduler: a runtime reports its jobs as Job.
package usage

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/schema"
)

// Job is what one run of a job used on one day (UTC), as a runtime reports it. A run over midnight has a
// Job for each of its days, so that a day can be closed while the run goes on. A job that runs again is
// another run: Submitted differs.
type Job struct {
	// Cluster is the name that the runtime gave the unit. Job ids repeat after a cluster
	// lost its state: only Run names a run.
	Cluster   string    `json:"cluster"`
	JobID     int       `json:"job_id"`
	Submitted time.Time `json:"submitted_at"`
	Started   time.Time `json:"started_at"`
	Ended     time.Time `json:"ended_at"`
	// Suspended is the time between Started and Ended for which accounting charges no CPUs.
	Suspended int64  `json:"suspended_seconds,omitempty"`
	State     string `json:"state"`                // how the run ended, in the words of the runtime; "": it went on after Ended
	User      string `json:"user"`                 // Unix user
	ProjectID string `json:"project_id,omitempty"` // whose account it used; "": the unit has no projects' accounts
	Place
	Resources
}

// Place is where a run ran.
type Place struct {
	// Queue is the queue that the project's QueueMap has for partition and QoS; "": none, or several.
	Queue     string `json:"queue,omitempty"`
	Partition string `json:"partition,omitempty"`
	QoS       string `json:"qos,omitempty"` // "": it was deleted before it was read
}

// Resources are the allocated resources of a run.
type Resources struct {
	CPUs      int    `json:"cpus,omitempty"`
	MemoryMiB int    `json:"memory_mib,omitempty"`
	GPUs      int    `json:"gpus,omitempty"`
	GPUType   string `json:"gpu_type,omitempty"` // "": none, several, or the runtime does not know it
	// Billing is the weight that the runtime gives the job, such as by weights of a partition; 0: it has
	// no weights.
	Billing int `json:"billing,omitempty"`
}

// Run names one run of a job.
type Run struct {
	Cluster   string
	JobID     int
	Submitted int64 // seconds since 1970
}

// Run returns the name of the run.
func (j *Job) Run() Run { return Run{j.Cluster, j.JobID, j.Submitted.Unix()} }

// StartDay returns the day of the use in UTC, such as 2026-11-01.
func (j *Job) StartDay() string { return j.Started.UTC().Format(time.DateOnly) }

// Held returns the seconds from start to end, for which accounting charges GPUs and memory: a
// suspended job keeps them.
func (j *Job) Held() int64 { return max(0, int64(j.Ended.Sub(j.Started)/time.Second)) }

// Elapsed returns the seconds for which accounting charges CPUs: Held without suspensions.
func (j *Job) Elapsed() int64 { return max(0, j.Held()-j.Suspended) }

// Amounts are what sums add up: a job with 2 GPUs for 10 s has 20 GPU seconds. In a correction they are
// the difference, and may be negative.
type Amounts struct {
	CPUSeconds       int64 `json:"cpu_seconds"`
	GPUSeconds       int64 `json:"gpu_seconds"`
	MemoryMiBSeconds int64 `json:"memory_mib_seconds"`
	BillingSeconds   int64 `json:"billing_seconds,omitempty"`
}

// Used returns the usage of the run on the day.
func (j *Job) Used() Amounts {
	held := j.Held()
	return Amounts{j.Elapsed() * int64(j.CPUs), held * int64(j.GPUs), held * int64(j.MemoryMiB), held * int64(j.Billing)}
}

// add adds other amounts n times.
func (a *Amounts) add(n int64, b Amounts) {
	a.CPUSeconds += n * b.CPUSeconds
	a.GPUSeconds += n * b.GPUSeconds
	a.MemoryMiBSeconds += n * b.MemoryMiBSeconds
	a.BillingSeconds += n * b.BillingSeconds
}

// NextDay returns the first moment of the next day in UTC.
func NextDay(t time.Time) time.Time { return t.UTC().Truncate(24*time.Hour).AddDate(0, 0, 1) }

// Days splits a run at the midnights in UTC. suspended returns for how many seconds the run was
// suspended between two times; it is asked only for a run of several days with a suspension.
func Days(run Job, suspended func(from, to time.Time) (int64, error)) ([]Job, error) {
	var parts []Job
	left := run.Suspended
	for from := run.Started; ; {
		part := run
		part.Started, part.Suspended = from, left
		next := NextDay(from)
		if !next.Before(run.Ended) {
			return append(parts, part), nil
		}
		part.Ended, part.State, part.Suspended = next, "", 0
		if left > 0 {
			var err error
			if part.Suspended, err = suspended(from, next); err != nil {
				return nil, err
			}
			left -= part.Suspended
		}
		parts, from = append(parts, part), next
	}
}

// Record is a Job with its amounts and their billing. It names two parties: the organisation and
// the project whose account the job used, and the unit with the organisation that owns it.
type Record struct {
	// Day is the day (UTC) that counts the amounts, such as 2026-11-01: the day of the use, or of a
	// correction the first day that was open.
	Day string `json:"day"`
	// Corrects is the closed day that a correction corrects: its amounts are those of accounting now less
	// those of that day's records, and its Job is that of accounting now. "": the record does not correct a day.
	Corrects string `json:"corrects,omitempty"`
	Job
	Amounts
	OrgID string `json:"org_id,omitempty"` // "": the platform's own
	// OwnerID is the organisation that owns the unit; "": the platform.
	OwnerID      string `json:"owner_org_id,omitempty"`
	Unit         string `json:"unit"`                    // its kind and resource name, such as "SharedRuntime physics/pool"
	UnitID       string `json:"unit_id"`                 // as in events
	AttachmentID string `json:"attachment_id,omitempty"` // resource name of the Attachment; "": the unit is the project's own
	// BillingPolicyRef is the rate card that the attachment names; "": schema.DefaultRates.
	BillingPolicyRef string `json:"billing_policy_ref,omitempty"`
	AppSlug          string `json:"app_slug"`
	// Mode, scope and backend are those of the unit when the record was written.
	OperatingMode     string `json:"operating_mode"`
	ControlPlaneScope string `json:"control_plane_scope"`
	RuntimeBackend    string `json:"runtime_backend"`
	CorrelationID     string `json:"correlation_id"` // of the change that was applied to the unit last
}

// Closing says that the records of a day of a cluster are complete: accounting had added the day up,
// and nothing was on its way to it.
type Closing struct {
	Cluster string `json:"cluster"`
	Day     string `json:"day"` // UTC, such as 2026-11-01
	Unit    string `json:"unit"`
	// OwnerID and AppSlug are as in Record.
	OwnerID string `json:"owner_org_id,omitempty"`
	AppSlug string `json:"app_slug"`
	// BillingPolicyRef is the rate card that the shared runtime names; "": schema.DefaultRates.
	BillingPolicyRef string `json:"billing_policy_ref,omitempty"`
	Records          int    `json:"records"`     // number of them, without corrections
	CPUs             int64  `json:"cpu_seconds"` // of its records, without corrections
	// Accounted are the CPU seconds that accounting reports for the day. They differ from CPUs only by
	// what accounting charges for without a job, such as reservations that nobody used.
	Accounted int64 `json:"accounted_cpu_seconds"`
	// Projects are the project of an instance, or those that were attached to a shared runtime when the
	// day was closed or whose jobs ran on it; sorted.
	Projects []string `json:"project_ids,omitempty"`
	Unused   *Unused  `json:"unused,omitempty"` // nil: unknown
}

// Count adds the records of the day to the closing, and their projects.
func (c *Closing) Count(records []Record) {
	for i := range records {
		r := &records[i]
		if r.Corrects != "" {
			continue
		}
		c.Records++
		c.CPUs += r.CPUSeconds
		if r.ProjectID != "" && !slices.Contains(c.Projects, r.ProjectID) {
			c.Projects = append(c.Projects, r.ProjectID)
		}
	}
}

// Unused is the time of CPUs and GPUs of a unit on a day that no job had, in seconds: Idle on nodes
// that were up, and Down on others.
type Unused struct {
	IdleCPUs int64 `json:"idle_cpu_seconds"`
	DownCPUs int64 `json:"down_cpu_seconds"`
	IdleGPUs int64 `json:"idle_gpu_seconds"`
	DownGPUs int64 `json:"down_gpu_seconds"`
}

// DayReport is what accounting reports for a day.
type DayReport struct {
	CPUs   int64   // seconds for which it charges accounts
	Unused *Unused // nil: unknown
}

// Attachment is the part of a project's Attachment that a record keeps.
type Attachment struct {
	Name             string // "": the project is attached without terms
	BillingPolicyRef string
}

// New attributes a job of a unit. owner has the unit's own attributes; attachments are those of a
// shared runtime by project.
func New(unit schema.Key, owner Record, job Job, attachments map[string]Attachment) Record {
	r := owner
	r.Day, r.Job, r.Amounts = job.StartDay(), job, job.Used()
	r.OwnerID, r.OrgID, r.Unit = unit.Tenant, unit.Tenant, unit.String()
	if unit.Project != "" {
		r.ProjectID = unit.ProjectID()
	}
	if a := attachments[job.ProjectID]; a.Name != "" {
		at := schema.Key{Kind: schema.KindAttachment, Tenant: unit.Tenant, Parent: unit.Name, Name: a.Name}
		r.AttachmentID, r.BillingPolicyRef = at.ResourceName(), a.BillingPolicyRef
	}
	if tenant, _, ok := strings.Cut(r.ProjectID, "."); ok {
		r.OrgID = tenant
	}
	return r
}

// platform takes the place of a tenant in the paths of the platform's own units. No tenant has this name.
const platform = "_platform"

// MaxFile bounds a file in bytes; a single line may be larger.
const MaxFile = 4 << 20

// Day is all that the branch has of a cluster on a day. It is written whole: its files replace all that
// were there. Without records it has no file.
type Day struct {
	Tenant  string // that owns the unit; "": the platform
	Cluster string
	Date    string // UTC, such as 2026-11-01
	Records []Record
}

// Path returns the path of a file of the day on berth/status, counted from 1.
func (d *Day) Path(file int) string {
	path := Dir + "/" + d.Date + "/" + cmp.Or(d.Tenant, platform) + "/" + d.Cluster
	if file > 1 {
		path += fmt.Sprintf(".%d", file)
	}
	return path + ".jsonl"
}

// Files returns the content of the files in their order, one record a line. The same records give the same
// bytes. Nearly always it is one file: see MaxFile.
func (d *Day) Files() (files [][]byte, err error) {
	var b []byte
	for _, r := range slices.SortedFunc(slices.Values(d.Records), compare) {
		line, err := json.Marshal(r)
		if err != nil {
			return nil, fmt.Errorf("usage record of job %d of %s: %w", r.JobID, r.Cluster, err)
		}
		if len(b) > 0 && len(b)+len(line) >= MaxFile {
			files, b = append(files, b), nil
		}
		b = append(append(b, line...), '\n')
	}
	if len(b) > 0 {
		files = append(files, b)
	}
	return files, nil
}

// Equal reports whether the files of the day are those of other records.
func (d *Day) Equal(records []Record) (bool, error) {
	other := *d
	other.Records = records
	a, err := d.Files()
	b, err2 := other.Files()
	return slices.EqualFunc(a, b, bytes.Equal), errors.Join(err, err2)
}

func compare(a, b Record) int {
	return cmp.Or(cmp.Compare(a.Corrects, b.Corrects), a.Started.Compare(b.Started), a.Ended.Compare(b.Ended),
		cmp.Compare(a.JobID, b.JobID), a.Submitted.Compare(b.Submitted))
}

// Dir has all that berth/status has of usage.
const Dir = "usage"

// ClosedDir has the closings of a cluster at usage/closed/<cluster>/<day>.json. No tenant's records are
// there: their directories are days.
const ClosedDir = Dir + "/closed"

// File returns the path and the content of a closing on berth/status.
func (c *Closing) File() (path string, data []byte, err error) {
	data, err = json.Marshal(c)
	return ClosedDir + "/" + c.Cluster + "/" + c.Day + ".json", append(data, '\n'), err
}

// DecodeClosing parses a file that File made.
func DecodeClosing(data []byte) (Closing, error) {
	var c Closing
	if err := json.Unmarshal(data, &c); err != nil {
		return Closing{}, fmt.Errorf("not a closing of a day: %w", err)
	}
	if _, err := time.Parse(time.DateOnly, c.Day); err != nil || c.Cluster == "" {
		return Closing{}, errors.New("not a closing of a day: it needs cluster and day")
	}
	return c, nil
}
