// Package usage has the records of what jobs used: who used what, of which unit, and when. The
// records of a unit stay on berth/status when the unit is gone (requirements A13, D6).
//
// It must not know any scheduler: a runtime reports its jobs as Job.
package usage

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/schema"
)

// Job is what one run of a job used on one day (UTC). A run over midnight has a Job for each of its
// days, so that a day can be closed while the run goes on. A job that runs again is another run:
// Submitted differs.
type Job struct {
	// Cluster is the name that the runtime gave the unit. The ids of jobs begin anew where a cluster
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
	CPUs      int    `json:"cpus,omitempty"`
	MemoryMiB int    `json:"memory_mib,omitempty"`
	GPUs      int    `json:"gpus,omitempty"`
	GPUType   string `json:"gpu_type,omitempty"` // "": none, several, or the runtime does not know it
	// Billing is what the runtime weighs the job with, such as by weights of a partition; 0: it has
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

// Part names what a run used on one day.
type Part struct {
	Run
	Day string // UTC, such as 2026-11-01
}

// Part returns the name of the part.
func (j *Job) Part() Part { return Part{j.Run(), j.Day()} }

// Day returns the day of the use in UTC, such as 2026-11-01.
func (j *Job) Day() string { return j.Started.UTC().Format(time.DateOnly) }

// Held returns the seconds from start to end, for which accounting charges GPUs and memory: a
// suspended job keeps them.
func (j *Job) Held() int64 { return max(0, int64(j.Ended.Sub(j.Started)/time.Second)) }

// Elapsed returns the seconds for which accounting charges CPUs: Held without suspensions.
func (j *Job) Elapsed() int64 { return max(0, j.Held()-j.Suspended) }

// Equal reports whether two Jobs say the same.
func (j *Job) Equal(o Job) bool {
	a, b := *j, o
	if !a.Submitted.Equal(b.Submitted) || !a.Started.Equal(b.Started) || !a.Ended.Equal(b.Ended) {
		return false
	}
	a.Submitted, a.Started, a.Ended = b.Submitted, b.Started, b.Ended // a time zone changes nothing
	return a == b
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

// Record is a Job with what it is billed to. It has two anchors: the organisation and the project
// whose account the job used, and the unit with the organisation that owns it.
type Record struct {
	Job
	OrgID string `json:"org_id,omitempty"` // "": the platform's own
	// OwnerID is the organisation that owns the unit; "": the platform.
	OwnerID      string `json:"owner_org_id,omitempty"`
	Unit         string `json:"unit"`                    // its kind and resource name, such as "SharedRuntime physics/pool"
	UnitID       string `json:"unit_id"`                 // as in events
	AttachmentID string `json:"attachment_id,omitempty"` // resource name of the Attachment; "": the unit is the project's own
	// BillingPolicyRef is what the attachment names as its rate card; "": schema.DefaultRates.
	BillingPolicyRef string `json:"billing_policy_ref,omitempty"`
	AppSlug          string `json:"app_slug"`
	// Mode, scope and backend are those of the unit when the record was written.
	OperatingMode     string `json:"operating_mode"`
	ControlPlaneScope string `json:"control_plane_scope"`
	RuntimeBackend    string `json:"runtime_backend"`
	CorrelationID     string `json:"correlation_id"` // of the change that was applied to the unit last
	// Correction counts the corrections of a Part; the record with the highest one counts. 0: it is
	// the first record.
	Correction int `json:"correction,omitempty"`
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
	// BillingPolicyRef is what the shared runtime names as its rate card; "": schema.DefaultRates.
	BillingPolicyRef string `json:"billing_policy_ref,omitempty"`
	Parts            int    `json:"parts"`       // number of its records, each part once, without withdrawn ones
	CPUs             int64  `json:"cpu_seconds"` // of its records
	// Accounted are the CPU seconds that accounting reports for the day. They differ from CPUs only by
	// what accounting charges for without a job, such as reservations that nobody used.
	Accounted int64 `json:"accounted_cpu_seconds"`
	// Projects are the project of an instance, or those that were attached to a shared runtime when the
	// day was closed or whose jobs ran on it; sorted.
	Projects []string `json:"project_ids,omitempty"`
	Unused   *Unused  `json:"unused,omitempty"` // nil: unknown
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

// Attachment is what a record has of the Attachment of a project.
type Attachment struct {
	Name             string // "": the project is attached without terms
	BillingPolicyRef string
}

// New attributes a job of a unit. owner has the unit's own attributes; attachments are those of a
// shared runtime by project.
func New(unit schema.Key, owner Record, job Job, attachments map[string]Attachment) Record {
	r := owner
	r.Job, r.OwnerID, r.OrgID, r.Unit = job, unit.Tenant, unit.Tenant, unit.String()
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

// platform stands for a tenant in the paths of the platform's own records. No tenant has this name.
const platform = "_platform"

// MaxFile bounds a file in bytes; a single line may be larger.
const MaxFile = 4 << 20

// Files returns records as files of berth/status by path, one record a line:
// usage/<day of the use, UTC>/<tenant>/<hash of the content>.jsonl. The same records have the same
// files, so that records written again after a crash change nothing. A Part may stand in two
// files: readers count its record with the highest Correction.
func Files(records []Record) (map[string][]byte, error) {
	records = slices.Clone(records)
	slices.SortFunc(records, compare)
	parts := map[string]*bytes.Buffer{}
	files := map[string][]byte{}
	put := func(dir string, b *bytes.Buffer) {
		sum := sha256.Sum256(b.Bytes())
		files[dir+"/"+hex.EncodeToString(sum[:8])+".jsonl"] = bytes.Clone(b.Bytes())
		b.Reset()
	}
	for _, r := range records {
		line, err := json.Marshal(r)
		if err != nil {
			return nil, fmt.Errorf("usage record of job %d of %s: %w", r.JobID, r.Cluster, err)
		}
		tenant := r.OrgID
		if tenant == "" {
			tenant = platform
		}
		dir := "usage/" + r.Day() + "/" + tenant
		b := parts[dir]
		if b == nil {
			b = &bytes.Buffer{}
			parts[dir] = b
		}
		if b.Len() > 0 && b.Len()+len(line) >= MaxFile {
			put(dir, b)
		}
		b.Write(append(line, '\n'))
	}
	for dir, b := range parts {
		put(dir, b)
	}
	return files, nil
}

func compare(a, b Record) int {
	return cmp.Or(a.Started.Compare(b.Started), a.Ended.Compare(b.Ended), strings.Compare(a.Cluster, b.Cluster), cmp.Compare(a.JobID, b.JobID), a.Submitted.Compare(b.Submitted), cmp.Compare(a.Correction, b.Correction))
}

// ClosedDir has the closings of a cluster at usage/closed/<cluster>/<day>.json. No tenant's records are
// there: their directories are days.
const ClosedDir = "usage/closed"

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
