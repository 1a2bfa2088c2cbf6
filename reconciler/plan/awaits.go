package plan

// UnitReview stands in the status of a unit whose revision came and of which it
// was not found yet that its plan is the one that was reviewed. It goes once it
// was: what is then done towards that revision needs no other. It can only hold
// things up, so that a status without one, such as one that was lost, holds
// nothing.
type UnitReview struct {
	Pull int `json:"pull,omitempty"` // whose review it is compared with; 0: none is known yet
	// Stale is why the unit is held; nil: it is not.
	Stale *StalePlan `json:"stale,omitempty"`
	// Meant is the digest of a plan that By, a login, said is meant though nobody
	// reviewed it.
	Meant string `json:"meant,omitempty"`
	By    string `json:"by,omitempty"`
}
