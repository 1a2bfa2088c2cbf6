package decide

import (
	"cmp"
	"slices"

	"berth/schema"
	"berth/schema/estate"
)

// pauseFile stops every effect while it stands.
const pauseFile = "platform/pause.yaml"

// Paused says why Berth shall have no effect; "": it may. A pause that cannot
// be read pauses all the same: who pulls a brake badly still pulls it. One by
// somebody who has not the right to does not, and neither does such a one lift
// what somebody with the right put there: that still waits, whatever came over it.
func (d Decision) Paused() string {
	if p := d.Desired.Platform.Pause; p != nil && !p.Suspend {
		return p.Spec.Reason
	}
	if d.Permitted[pauseFile] == "" {
		return ""
	}
	for _, h := range d.Held {
		if h.File == pauseFile && h.Reason == estate.HeldInvalid {
			return "platform/pause.yaml stands there and cannot be read: " + h.Message
		}
	}
	return "platform/pause.yaml was put there, cannot be read, and was changed since by somebody who may not lift it: somebody who may puts a valid one there, and takes that away to go on"
}

// brake is the blob of a pause that was permitted, never came into force, and was
// taken away by somebody who may not lift one; "" for none. Otherwise a revert
// needs no right; but a pause that cannot be read stops everything all the same.
func (g *guard) brake() string {
	blob := g.permitted[pauseFile]
	_, changed := slices.BinarySearchFunc(g.changes, pauseFile, func(c schema.PathChange, p string) int { return cmp.Compare(c.Path, p) })
	who, touched := g.author(pauseFile)
	switch {
	case blob == "" || changed || g.trust && touched:
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
