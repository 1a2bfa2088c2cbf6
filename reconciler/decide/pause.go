package decide

import (
	"berth/schema"
)

// pauseFile stops every effect while it exists.
const pauseFile = "platform/pause.yaml"

// Paused returns the reason of a pause; "" without one. An unreadable pause counts, if
// it was permitted. A pause without permission does not count, and a permitted one is
// lifted only with permission.
func (d Decision) Paused() string {
	if p := d.Desired.Platform.Pause; p != nil && !p.Suspend {
		return p.Spec.Reason
	}
	if d.Permitted[pauseFile] == "" {
		return ""
	}
	for _, h := range d.Held {
		if h.File == pauseFile && h.Reason == schema.HeldInvalid {
			return "platform/pause.yaml exists and cannot be read: " + h.Message
		}
	}
	return "an unreadable platform/pause.yaml was changed or deleted without permission; to resume: replace it with a valid document, " +
		"then delete it (needs platform.pause)"
}
