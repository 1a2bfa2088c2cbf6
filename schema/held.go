package schema

// Held is a document or a file that does not come into force, with the reason. An
// earlier version stays in force.
type Held struct {
	Key     Key    `json:"key,omitzero"` // zero for a file without a key
	File    string `json:"file"`
	Reason  string `json:"reason"` // one of the reasons below
	Message string `json:"message"`
}

// The reasons of a Held.
const (
	HeldInvalid = "invalid" // the file has errors
	HeldNeeds   = "needs"   // a document that it needs, or that needs it, does not come into force
	HeldDenied  = "denied"  // a check or a veto refuses it

	// HeldBlocked: a deletion that waits for an acknowledgement or for a valid tree;
	// /berth apply and /berth ack-delete release it.
	HeldBlocked = "blocked"

	// HeldUnauthorised: its author lacks the permission.
	HeldUnauthorised = "unauthorised"

	// HeldUnreadable: a whole part, File, cannot be read. It may become readable, so the
	// same two trees may give another result later.
	HeldUnreadable = "unreadable"
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
	return h.Reason
}
