package usage

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Decode parses a line of a file that Files made.
func Decode(line []byte) (Record, error) {
	var r Record
	if err := json.Unmarshal(line, &r); err != nil {
		return Record{}, fmt.Errorf("not a usage record: %w", err)
	}
	if r.Cluster == "" || r.JobID <= 0 || r.Submitted.IsZero() || r.Ended.IsZero() {
		return Record{}, errors.New("not a usage record: it needs cluster, job_id, submitted_at and ended_at")
	}
	return r, nil
}

// Account is the project that used a unit.
type Account struct {
	OrgID     string `json:"org_id,omitempty"`
	ProjectID string `json:"project_id,omitempty"` // "": no project's
	Unit      string `json:"unit"`
	AppSlug   string `json:"app_slug"`
}

// Sum is what the jobs of an Account used, in whole seconds: a job with 2 GPUs for 10 s has 20 GPU
// seconds. The time of a job is from its start to its end.
type Sum struct {
	Account
	Jobs             int   `json:"jobs"`
	CPUSeconds       int64 `json:"cpu_seconds"`
	GPUSeconds       int64 `json:"gpu_seconds"`
	MemoryMiBSeconds int64 `json:"memory_mib_seconds"`
}

// Sums adds records up, each run of a job once.
type Sums struct {
	seen map[Run]bool
	by   map[Account]*Sum
}

// NewSums returns empty sums.
func NewSums() *Sums { return &Sums{map[Run]bool{}, map[Account]*Sum{}} }

// Add adds a record, unless its run was added before.
func (s *Sums) Add(r Record) {
	if s.seen[r.Run()] {
		return
	}
	s.seen[r.Run()] = true
	key := Account{r.OrgID, r.ProjectID, r.Unit, r.AppSlug}
	sum := s.by[key]
	if sum == nil {
		sum = &Sum{Account: key}
		s.by[key] = sum
	}
	seconds := max(0, int64(r.Ended.Sub(r.Started)/time.Second))
	sum.Jobs++
	sum.CPUSeconds += seconds * int64(r.CPUs)
	sum.GPUSeconds += seconds * int64(r.GPUs)
	sum.MemoryMiBSeconds += seconds * int64(r.MemoryMiB)
}

// All returns the sums in order of organisation, project and unit.
func (s *Sums) All() []Sum {
	keys := slices.SortedFunc(maps.Keys(s.by), func(a, b Account) int {
		return cmp.Or(cmp.Compare(a.OrgID, b.OrgID), cmp.Compare(a.ProjectID, b.ProjectID), cmp.Compare(a.Unit, b.Unit), cmp.Compare(a.AppSlug, b.AppSlug))
	})
	all := []Sum{}
	for _, k := range keys {
		all = append(all, *s.by[k])
	}
	return all
}
