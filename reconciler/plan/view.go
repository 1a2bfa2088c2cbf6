package plan

import (
	"time"

	"berth/schema"
)

// View is one consistent state of an estate, for readers: one decision, and the statuses
// of all resources. Immutable, except for what Dates and Deleted know.
type View struct {
	Main, InForce string // commits: the decided one of main, and the one of berth/in-force
	Desired       *schema.Desired
	Effective     *schema.Effective
	Held          []schema.Held
	Units         Memory
	Things        map[schema.Key]*ThingStatus
	// Dates returns when a document was added to main, and when it got the content of this
	// blob, UTC, from the dates of the commits; the zero time if unknown. Nil: all are
	// unknown.
	Dates func(path, blob string) (created, updated time.Time)
	// Deleted returns the last deleted instance of a project with that id or name within
	// the retention, or false. Nil: none is known.
	Deleted func(tenant, project, id string) (DeletedInstance, bool)
}
