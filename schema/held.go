package schema

// Held is a document or a file that does not come into force, with the reason. An
// earlier version stays in force.
type Held struct {
	Key     Key        `json:"key,omitzero"` // zero for a file without a key
	File    string     `json:"file"`
	Reason  HeldReason `json:"reason"`
	Message string     `json:"message"`
	Ack     string     `json:"ack,omitempty"` // digest that acknowledges the deletion; "": no acknowledgement releases it
}

// HeldReason is why a document does not come into force.
type HeldReason string

// The reasons.
const (
	HeldInvalid      HeldReason = "invalid"      // The file has errors.
	HeldNeeds        HeldReason = "needs"        // A document that it needs, or that needs it, does not come into force.
	HeldDenied       HeldReason = "denied"       // A check or a veto refuses it.
	HeldBlocked      HeldReason = "blocked"      // The deletion waits for a valid tree, /berth apply or /berth ack-delete.
	HeldUnauthorised HeldReason = "unauthorised" // Its author lacks the permission.
	HeldQuota        HeldReason = "quota"        // A quota of the month is used up; it ends with the month or a wider policy.
	HeldUnreadable   HeldReason = "unreadable"   // A whole tree cannot be read now; a later attempt may read it.
)

// CodeUsedUp is the code of the finding that holds a change because a quota of the month is used up.
const CodeUsedUp = "quota.used-up"

// Why returns the reason in the words of the documentation.
func (h Held) Why() string {
	switch h.Reason {
	case HeldUnauthorised:
		return "unauthorized"
	case HeldDenied:
		return "denied by policy"
	case HeldQuota:
		return "quota used up"
	case HeldNeeds:
		return "waiting for reference"
	case HeldBlocked:
		return "blocked deletion"
	}
	return string(h.Reason)
}
