package plan

import (
	"slices"
	"time"

	"berth/schema"
)

// Check is one named check of a commit: a conclusion, a title and the reasons.
type Check struct {
	Name       string     // such as "berth/plan"
	Key        string     // covers the displayed content: equal keys, equal checks; at most 200 characters
	Conclusion Conclusion // result for a required check
	Title      string     // one line, at most 140 characters
	Summary    string     // Markdown, escaped
	// Notes are shown at lines of the change; other findings are in Summary.
	Notes []schema.Diagnostic
	// Pull is the pull request that shows the check; 0: none. Key does not cover it.
	Pull int `json:"-"`
}

// Conclusion of a Check.
type Conclusion string

// The conclusions. A check without findings succeeds: a required check that is never
// reported blocks forever.
const (
	Success Conclusion = "success"
	Failure Conclusion = "failure"
)

// Names of the checks. The first says that the documents are valid and needs no cluster.
// The second says that a merge is permitted and possible.
const (
	CheckValidate = "berth/validate"
	CheckPlan     = "berth/plan"
)

// Review is the plan that a pull request last showed. It is kept on berth/status as
// pulls/<number>.yaml from before its publication until its roll-out ends. After the
// merge, a unit is changed only by the plan that was shown, and
// Review records that plan. It grants no permission; it can only hold a unit.
type Review struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // PullReview
	Pull       int    `json:"pull"`
	Shown
	// Next is the current plan, recorded before it is shown. It replaces Shown when
	// it is shown; nil: the plan did not change.
	Next *Shown `json:"next,omitempty"`
	// Applies are the plans of commands that were posted on the pull request.
	Applies []ApplyShown `json:"applies,omitempty"`
}

// ApplyShown is the posted plan of a command to apply a commit. A later command counts
// as approval of that plan.
type ApplyShown struct {
	Commit string    `json:"commit"` // commit of main
	Digest string    `json:"digest"` // of the documents that come into force, and of their effect
	At     time.Time `json:"told"`   // time when it was posted
}

// Shown is one result on a pull request. The zero value was never shown.
type Shown struct {
	Head   string `json:"head,omitempty"`   // planned commit
	Base   string `json:"base,omitempty"`   // commit of main that it was merged into
	Digest string `json:"digest,omitempty"` // of the Proposal; "": planning failed
	// Key covers the displayed content except Base. While Key is equal, the comment
	// stays and names the Base of its first version.
	Key string `json:"key,omitempty"`
	// Passed reports that the check succeeded, so a user could merge.
	Passed bool `json:"passed,omitempty"`
	// At is the time of planning, from the live state at that time; zero: unknown. Since
	// is the difference in steps from the plan of the previous head.
	At    time.Time      `json:"at,omitzero"`
	Since []DiffLine     `json:"since,omitempty"`
	Units []ReviewedUnit `json:"units,omitempty"` // sorted by key
	// More has the units that do not fit into Units, each as MoreUnit.
	More []string `json:"more,omitempty"`
}

// Jobs returns the impacts on the jobs of its units at the time of planning, sorted by key.
func (s *Shown) Jobs() []UnitJobs {
	var out []UnitJobs
	for _, u := range s.Units {
		if u.Jobs != nil {
			out = append(out, UnitJobs{Key: u.Key, JobImpact: *u.Jobs})
		}
	}
	return out
}

// ReviewedUnit is the displayed plan of one unit. It is enough to identify the
// plan and to describe how a later one differs.
type ReviewedUnit struct {
	Key    schema.Key `json:"key"`
	Digest string     `json:"digest"`
	Steps  []string   `json:"steps,omitempty"` // actions, one line each, in order
	Facts  []string   `json:"facts,omitempty"` // inputs, one line each: members, nodes, states
	Jobs   *JobImpact `json:"jobs,omitempty"`  // impact on the jobs at the time of planning; nil: unknown
}

// KindReview is the kind of a Review's document.
const KindReview = "PullReview"

// MaxReviewedUnits limits the units of a Shown with text. MaxMoreUnits limits the
// further units with a digest only. Units beyond both limits count as not reviewed.
const (
	MaxReviewedUnits = 2000
	MaxMoreUnits     = 10_000
	maxReviewedBytes = 400 << 10 // steps and facts of all units
)

// Keep puts units into s, within its limits. Units beyond the size limit keep only their
// digest; units beyond MaxReviewedUnits are kept as MoreUnit.
func (s *Shown) Keep(units []ReviewedUnit) {
	s.Units, s.More = nil, nil
	bytes := 0
	for i, u := range units {
		if i >= MaxReviewedUnits {
			if i < MaxReviewedUnits+MaxMoreUnits {
				s.More = append(s.More, MoreUnit(u.Key, u.Digest))
			}
			continue
		}
		for _, line := range slices.Concat(u.Steps, u.Facts) {
			bytes += len(line) + 8
		}
		if bytes > maxReviewedBytes {
			u.Steps, u.Facts = nil, nil
		}
		s.Units = append(s.Units, u)
	}
}

// MoreUnit identifies a unit and the digest of its plan.
func MoreUnit(key schema.Key, of string) string {
	return digest([]string{key.String(), of})[:32]
}

// Unit returns the review of a unit; nil if only its digest is kept. same reports
// whether it was shown with that digest.
func (s *Shown) Unit(key schema.Key, of string) (u *ReviewedUnit, same bool) {
	i, ok := slices.BinarySearchFunc(s.Units, key, func(u ReviewedUnit, k schema.Key) int { return u.Key.Compare(k) })
	if ok {
		return &s.Units[i], s.Units[i].Digest == of
	}
	return nil, slices.Contains(s.More, MoreUnit(key, of))
}
