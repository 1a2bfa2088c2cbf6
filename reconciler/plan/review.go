package plan

import (
	"slices"
	"time"

	"berth/schema"
)

// Check is what is said of a commit, as one named check: a verdict, a line and
// the reasons.
type Check struct {
	Name       string     // such as "berth/plan"
	Key        string     // of all that is shown: equal keys, equal checks; at most 200 characters
	Conclusion Conclusion // what a required check goes by
	Title      string     // one line, at most 140 characters
	Summary    string     // harmless Markdown
	// Notes are shown beside the lines of the change they are at; what is at no
	// line of it is in Summary.
	Notes []schema.Diagnostic
	// Pull is the pull request that it is shown for; 0: none. It is no part of Key.
	Pull int `json:"-"`
}

// Conclusion of a Check.
type Conclusion string

// The conclusions. Nothing to say is a success: a required check that stays
// silent would block for ever.
const (
	Success Conclusion = "success"
	Failure Conclusion = "failure"
)

// Names of the checks: what is written is right, which no cluster needs to be
// asked for; and what it would do is allowed and possible.
const (
	CheckValidate = "berth/validate"
	CheckPlan     = "berth/plan"
)

// Review is what a pull request was last shown to do, kept on berth/status as
// pulls/<number>.yaml from before it is shown until its roll-out is over. After
// the merge a unit is changed only by the plan that was shown of it (promise 1 of
// DESIGN §1): Review tells whether it is that. It holds nobody's permission; it
// can only hold things up.
type Review struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // PullReview
	Pull       int    `json:"pull"`
	Shown
	// Next is what it would do by now, which is kept before it is shown and takes
	// Shown's place once it is; nil: nothing else.
	Next *Shown `json:"next,omitempty"`
	// Applies are the plans of commands that were posted there.
	Applies []ApplyShown `json:"applies,omitempty"`
}

// ApplyShown is the plan of a command to apply a commit, as it was posted. A
// command that is given after that has been given knowing it.
type ApplyShown struct {
	Commit string    `json:"commit"` // of main
	Digest string    `json:"digest"` // of the documents that come into force, and what that does
	Told   time.Time `json:"told"`   // when it had been posted
}

// Shown is one result as it is shown on a pull request. The zero one was never.
type Shown struct {
	Head   string `json:"head,omitempty"`   // commit that was planned
	Base   string `json:"base,omitempty"`   // commit of main it was merged into for it
	Digest string `json:"digest,omitempty"` // of the Proposal; "": it could not be planned
	// Key is over everything shown but Base: while it is the same nothing is
	// written, and what is shown goes on naming the Base it was made with.
	Key string `json:"key,omitempty"`
	// Passed: the check on it succeeded, so that nobody had to wait for another to
	// merge it.
	Passed bool `json:"passed,omitempty"`
	// At is when it was planned, from the live state of that time; zero: unknown. Since
	// is how it differs from the plan of the head before, in steps.
	At    time.Time      `json:"at,omitzero"`
	Since []DiffLine     `json:"since,omitempty"`
	Units []ReviewedUnit `json:"units,omitempty"` // sorted by key
	// More are those that Units has no place for, each by MoreUnit of it.
	More []string `json:"more,omitempty"`
}

// Jobs is the work that was on its units when they were planned, sorted by key.
func (s *Shown) Jobs() []UnitJobs {
	var out []UnitJobs
	for _, u := range s.Units {
		if u.Jobs != nil {
			out = append(out, UnitJobs{Key: u.Key, Jobs: *u.Jobs})
		}
	}
	return out
}

// ReviewedUnit is the plan of one unit as it was shown: enough to recognise it,
// and to tell in words how a later one differs.
type ReviewedUnit struct {
	Key    schema.Key `json:"key"`
	Digest string     `json:"digest"`
	Steps  []string   `json:"steps,omitempty"` // what it does, a line each, in order
	Facts  []string   `json:"facts,omitempty"` // what it rests on, a line each: members, nodes, states
	Jobs   *Jobs      `json:"jobs,omitempty"`  // on it when it was planned; nil: nobody knows
}

// KindReview is the kind of a Review's document.
const KindReview = "PullReview"

// MaxReviewedUnits is how many units a Shown keeps in words, and MaxMoreUnits how
// many more it can recognise. What is beyond was not reviewed.
const (
	MaxReviewedUnits = 2000
	MaxMoreUnits     = 10_000
	maxReviewedBytes = 400 << 10 // of steps and facts, of all units together
)

// Keep puts units into s, within its bounds: of those whose words there is no
// place for, the digest is kept, or the digest of that.
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

// MoreUnit stands for a unit and the digest of its plan.
func MoreUnit(key schema.Key, of string) string {
	return digest([]string{key.String(), of})[:32]
}

// Unit is what was shown of a unit; nil if it is not told in words. same says
// whether it was shown with that digest.
func (s *Shown) Unit(key schema.Key, of string) (u *ReviewedUnit, same bool) {
	i, ok := slices.BinarySearchFunc(s.Units, key, func(u ReviewedUnit, k schema.Key) int { return u.Key.Compare(k) })
	if ok {
		return &s.Units[i], s.Units[i].Digest == of
	}
	return nil, slices.Contains(s.More, MoreUnit(key, of))
}

// CodeStale blocks a unit whose plan is not the one that was reviewed: nothing is
// done to it until somebody says that the plan there is now is meant.
const CodeStale = "plan.stale"
