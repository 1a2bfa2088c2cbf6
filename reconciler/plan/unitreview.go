package plan

import "time"

// UnitReview is part of the status of a unit with a new revision until its plan is
// compared with the reviewed one. It is removed when the plan starts. It can only hold a
// unit, so a status without one, such as a lost status, holds nothing.
type UnitReview struct {
	Pull int `json:"pull,omitempty"` // pull request of the review to compare with; 0: unknown
	// Commits of main came since the unit was changed last, besides its revision. Their pull requests
	// may have shown the plan, or steps of it.
	Commits []string `json:"commits,omitempty"`
	// Stale is why the unit is held; nil if it is not.
	Stale *StalePlan `json:"stale,omitempty"`
	// Posted is the plan that the comment showed for Stale; nil if none was shown
	// yet.
	Posted *PostedPlan `json:"offer,omitempty"`
	// Meant is the digest of a plan that By, a login, approved without a review.
	Meant string `json:"meant,omitempty"`
	By    string `json:"by,omitempty"`
	// Stopped says that the unit was stopped on request, so repairing it does not
	// start it.
	Stopped bool `json:"stopped,omitempty"`
}

// PostedPlan is the plan of a held unit as a comment shows it. Only a command given
// after that approves it.
type PostedPlan struct {
	Digest string    `json:"digest"`
	At     time.Time `json:"told"` // time when the comment was posted
}

// WithPosted returns u with the posted plan of before, if both are for the same plan.
func (u *UnitReview) WithPosted(before *UnitReview) *UnitReview {
	if u == nil || u.Posted != nil || u.Stale == nil || before == nil || before.Posted == nil || before.Posted.Digest != u.Stale.Now {
		return u
	}
	next := *u
	next.Posted = before.Posted
	return &next
}
