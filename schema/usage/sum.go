package usage

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Decode parses a line of a file of a Day.
func Decode(line []byte) (Record, error) {
	var r Record
	if err := json.Unmarshal(line, &r); err != nil {
		return Record{}, fmt.Errorf("not a usage record: %w", err)
	}
	if r.Day == "" || r.Cluster == "" || r.JobID <= 0 || r.Submitted.IsZero() || r.Ended.IsZero() {
		return Record{}, errors.New("not a usage record: it needs day, cluster, job_id, submitted_at and ended_at")
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
	return cmp.Or(cmp.Compare(a.Month, b.Month), cmp.Compare(a.OrgID, b.OrgID), cmp.Compare(a.ProjectID, b.ProjectID),
		cmp.Compare(a.Unit, b.Unit),
		cmp.Compare(a.AppSlug, b.AppSlug), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Rates, b.Rates), cmp.Compare(a.User, b.User))
}

// Sum is the usage of the jobs of an Account. While a job is suspended it uses its GPUs and memory, and no
// CPUs. Of KindShared it is the part of the Account of idle CPUs and GPUs.
type Sum struct {
	Account
	Jobs int `json:"jobs"` // that used something; one over a midnight counts once
	Amounts
	// Closed: no record of the selected days can come any more.
	Closed bool `json:"closed"`
	// Price is nil without a rate card.
	Price *Price `json:"price,omitempty"`
}

// Sums adds records up, in order of month, organisation, project and unit.
func Sums(records []Record, t *Terms) []Sum {
	by := map[Account]*Sum{}
	runs, costs := map[Account]map[Run]bool{}, map[Account]*Cost{}
	for i := range records {
		r := &records[i]
		rates, card := t.card(r.BillingPolicyRef, r.OrgID, cmp.Or(r.Corrects, r.Day))
		key := Account{Month: r.Day[:len("2026-11")], OrgID: r.OrgID, ProjectID: r.ProjectID, Unit: r.Unit, AppSlug: r.AppSlug,
			Kind: KindJobs, Rates: rates}
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
		if r.Held() > 0 && r.Corrects == "" {
			runs[key][r.Run()] = true
		}
		if cost := costs[key]; cost != nil {
			cost.Add(r)
		}
		sum.add(1, r.Amounts)
	}
	all := shared(records, t)
	for key, sum := range by {
		if sum.Jobs = len(runs[key]); sum.Jobs == 0 && sum.Amounts == (Amounts{}) {
			continue
		}
		if cost := costs[key]; cost != nil {
			sum.Price = cost.Price()
		}
		all = append(all, *sum)
	}
	slices.SortFunc(all, func(a, b Sum) int { return a.compare(b.Account) })
	return all
}
