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
	return "an unreadable platform/pause.yaml was changed or deleted without permission; to resume: replace it with a valid document, then delete it (needs platform.pause)"
}

// keptPause returns the blob of a permitted pause that never came into force because
// it is unreadable, and that was deleted without permission; or "".
func (g *guard) keptPause() string {
	blob := g.permitted[pauseFile]
	who, touched := g.author(pauseFile)
	switch {
	case blob == "" || touches(g.changes, pauseFile) || g.trust && touched:
		return ""
	case !touched:
		return blob
	}
	gone := schema.PathChange{Path: pauseFile, From: blob}
	key := schema.Key{Kind: schema.KindPause, Name: "pause"}
	if _, denied := denial(g.d.decisions(who, g.before.Desired, g.main.Desired, key, gone)); denied {
		return blob
	}
	return ""
}
