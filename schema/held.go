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
	HeldUnreadable   HeldReason = "unreadable"   // A whole tree cannot be read now; a later attempt may read it.
)

// Why returns the reason in the words of the documentation.
func (h Held) Why() string {
	switch h.Reason {
	case HeldUnauthorised:
		return "unauthorized"
	case HeldDenied:
		return "denied by policy"
	case HeldNeeds:
		return "waiting for reference"
	case HeldBlocked:
		return "blocked deletion"
	}
	return string(h.Reason)
}
