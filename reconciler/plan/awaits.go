package plan

import "time"

// UnitReview stands in the status of a unit whose revision came and of which it
// was not found yet that its plan is the one that was reviewed. It goes when that is
// begun: what is then done towards that revision needs no other. It can only hold
// things up, so that a status without one, such as one that was lost, holds
// nothing.
type UnitReview struct {
	Pull int `json:"pull,omitempty"` // whose review it is compared with; 0: none is known yet
	// Stale is why the unit is held; nil: it is not.
	Stale *StalePlan `json:"stale,omitempty"`
	// Offer is what people were told of Stale; nil: nothing yet.
	Offer *Offer `json:"offer,omitempty"`
	// Meant is the digest of a plan that By, a login, said is meant though nobody
	// reviewed it.
	Meant string `json:"meant,omitempty"`
	By    string `json:"by,omitempty"`
	// Stopped says that what is applied of the unit stands still because that was
	// asked for, so that keeping it healthy is not to start it.
	Stopped bool `json:"stopped,omitempty"`
}

// Offer is the plan of a unit that is held, as a comment shows it. Only what was
// said after that means it.
type Offer struct {
	Digest string    `json:"digest"`
	Told   time.Time `json:"told"` // when the comment that shows it had been written
}

// Offered is u with what people were told of its plan before, if it is the same
// plan.
func (u *UnitReview) Offered(before *UnitReview) *UnitReview {
	if u == nil || u.Offer != nil || u.Stale == nil || before == nil || before.Offer == nil || before.Offer.Digest != u.Stale.Now {
		return u
	}
	next := *u
	next.Offer = before.Offer
	return &next
}
