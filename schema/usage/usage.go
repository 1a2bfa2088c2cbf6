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
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/schema"
)

// Job is one run of a job that has ended. A job that runs again is another Job: Submitted differs.
type Job struct {
	// Cluster is the name that the runtime gave the unit. The ids of jobs begin anew where a cluster
	// lost its state: only Run names a run.
	Cluster   string    `json:"cluster"`
	JobID     int       `json:"job_id"`
	Submitted time.Time `json:"submitted_at"`
	Started   time.Time `json:"started_at"`
	Ended     time.Time `json:"ended_at"`
	State     string    `json:"state"`                // how it ended, in the words of the runtime
	User      string    `json:"user"`                 // Unix user
	ProjectID string    `json:"project_id,omitempty"` // whose account it used; "": the unit has no projects' accounts
	CPUs      int       `json:"cpus,omitempty"`
	MemoryMiB int       `json:"memory_mib,omitempty"`
	GPUs      int       `json:"gpus,omitempty"`
}

// Run names one run of a job.
type Run struct {
	Cluster   string
	JobID     int
	Submitted int64 // seconds since 1970
}

// Run returns the name of the run.
func (j *Job) Run() Run { return Run{j.Cluster, j.JobID, j.Submitted.Unix()} }

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
	AppSlug      string `json:"app_slug"`
	// Mode, scope and backend are those of the unit when the record was written.
	OperatingMode     string `json:"operating_mode"`
	ControlPlaneScope string `json:"control_plane_scope"`
	RuntimeBackend    string `json:"runtime_backend"`
	CorrelationID     string `json:"correlation_id"` // of the change that was applied to the unit last
}

// New attributes a job of a unit. owner has the unit's own attributes; attachments are the names
// of the Attachments of a shared runtime by project.
func New(unit schema.Key, owner Record, job Job, attachments map[string]string) Record {
	r := owner
	r.Job, r.OwnerID, r.OrgID, r.Unit = job, unit.Tenant, unit.Tenant, unit.String()
	if unit.Project != "" {
		r.ProjectID = unit.ProjectID()
	}
	if name := attachments[job.ProjectID]; name != "" {
		at := schema.Key{Kind: schema.KindAttachment, Tenant: unit.Tenant, Parent: unit.Name, Name: name}
		r.AttachmentID = at.ResourceName()
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
// usage/<day of the end, UTC>/<tenant>/<hash of the content>.jsonl. The same records have the same
// files, so that records written again after a crash change nothing. A Run may stand in two
// files, which differ at most in AttachmentID and CorrelationID: readers count each Run once.
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
		dir := "usage/" + r.Ended.UTC().Format(time.DateOnly) + "/" + tenant
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
	return cmp.Or(a.Ended.Compare(b.Ended), strings.Compare(a.Cluster, b.Cluster), cmp.Compare(a.JobID, b.JobID), a.Submitted.Compare(b.Submitted))
}
