package usage

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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

// The kinds of Account.
const (
	KindJobs   = "jobs"   // what jobs used
	KindShared = "shared" // part of what no job had, and of the cost of the unit itself
)

// Account is who used a unit in a month.
type Account struct {
	Month     string `json:"month"` // UTC, such as 2026-11
	OrgID     string `json:"org_id,omitempty"`
	ProjectID string `json:"project_id,omitempty"` // "": no project's
	Unit      string `json:"unit"`
	AppSlug   string `json:"app_slug"`
	Kind      string `json:"kind"`  // KindJobs or KindShared
	Rates     string `json:"rates"` // name of the rate card that prices it
	User      string `json:"user,omitempty"`
}

func (a Account) compare(b Account) int {
	return cmp.Or(cmp.Compare(a.Month, b.Month), cmp.Compare(a.OrgID, b.OrgID), cmp.Compare(a.ProjectID, b.ProjectID), cmp.Compare(a.Unit, b.Unit),
		cmp.Compare(a.AppSlug, b.AppSlug), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Rates, b.Rates), cmp.Compare(a.User, b.User))
}

// Sum is what the jobs of an Account used, in whole seconds: a job with 2 GPUs for 10 s has 20 GPU
// seconds. While a job is suspended it uses its GPUs and memory, and no CPUs. Of KindShared it is the
// part of the Account of idle CPUs and GPUs.
type Sum struct {
	Account
	Jobs             int   `json:"jobs"` // that used something; one over a midnight counts once
	CPUSeconds       int64 `json:"cpu_seconds"`
	GPUSeconds       int64 `json:"gpu_seconds"`
	MemoryMiBSeconds int64 `json:"memory_mib_seconds"`
	// Closed: no record of the selected days can come any more.
	Closed bool `json:"closed"`
	// Price is nil where there is no rate card.
	Price *Price `json:"price,omitempty"`
}

// Sums adds records up, each part of a run once.
type Sums struct {
	records map[Part]Record
}

// NewSums returns empty sums.
func NewSums() *Sums { return &Sums{map[Part]Record{}} }

// Add adds a record, unless its part has been added with the same or a higher correction.
func (s *Sums) Add(r Record) {
	part := r.Part()
	if old, ok := s.records[part]; !ok || r.Correction > old.Correction {
		s.records[part] = r
	}
}

// All returns the sums in order of month, organisation, project and unit.
func (s *Sums) All(t *Terms) []Sum {
	by := map[Account]*Sum{}
	runs, costs := map[Account]map[Run]bool{}, map[Account]*Cost{}
	for _, r := range s.records {
		if r.Held() == 0 { // withdrawn
			continue
		}
		rates, card := t.card(r.BillingPolicyRef, r.OrgID, r.Day())
		key := Account{Month: r.Day()[:len("2026-11")], OrgID: r.OrgID, ProjectID: r.ProjectID, Unit: r.Unit, AppSlug: r.AppSlug, Kind: KindJobs,
			Rates: rates}
		if t.Users {
			key.User = r.User
		}
		sum := by[key]
		if sum == nil {
			sum = &Sum{Account: key, Closed: t.Closed != nil && t.Closed(r.Cluster, r.Unit, key.Month)}
			by[key], runs[key] = sum, map[Run]bool{}
			if card != nil {
				costs[key] = &Cost{card: card}
			}
		}
		runs[key][r.Run()] = true
		if cost := costs[key]; cost != nil {
			cost.Add(&r)
		}
		sum.CPUSeconds += r.Elapsed() * int64(r.CPUs)
		sum.GPUSeconds += r.Held() * int64(r.GPUs)
		sum.MemoryMiBSeconds += r.Held() * int64(r.MemoryMiB)
	}
	all := s.shared(t)
	for key, sum := range by {
		sum.Jobs = len(runs[key])
		if cost := costs[key]; cost != nil {
			sum.Price = cost.Price()
		}
		all = append(all, *sum)
	}
	slices.SortFunc(all, func(a, b Sum) int { return a.compare(b.Account) })
	return all
}
