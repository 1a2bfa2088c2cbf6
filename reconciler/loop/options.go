package loop

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/nodes"
	"berth/reconciler/plan"
	"berth/reconciler/pulls"
	"berth/runtimes"
)

// observeTimeout is the default of Settings.Observe.
const observeTimeout = 20 * time.Second

// Options configure a Reconciler.
type Options struct {
	Repo   reconciler.Repo
	Branch string // that pull requests are merged to; "": main
	// Accept is a commit of main whose documents the operator permits, although berth/in-
	// force, the record of held documents, is lost; "": none.
	Accept string
	Forge  reconciler.Forge // nil: no forge
	Render pulls.Render     // texts for the forge; required with a forge
	Decide decide.Options

	Runtimes map[string]runtimes.Runtime // by runtime_backend
	Readers  Readers

	Settings Settings
	Log      *slog.Logger
	Now      func() time.Time // nil: time.Now
	Metrics  *Metrics         // nil: not registered
	Owed     reconciler.Owed  // keeps audit records until they are written; nil: no record is owed
	Peers    Peers            // zero: this daemon takes leadership when it starts
	Hooks    Hooks
}

// Readers read what no unit's runtime reads.
type Readers struct {
	Artifacts runtimes.Artifacts  // verifies published bytes; nil: bytes are not verified
	Nodes     runtimes.NodeReader // reads the facts of hosts; nil: no node is observed
}

// Hooks are called while the loop works. A nil one is not called.
type Hooks struct {
	// Watch is called before each reconciliation of an item, and its result after
	// it: with false if the item is retried.
	Watch func(reconciler.Item) (ended func(done bool))
	// QueueMap is called with each event of a queue map, once it is recorded.
	QueueMap func(plan.Event)
	// Webhook sends a webhook of a rule once. again: another try may help.
	Webhook func(context.Context, Webhook) (again bool, err error)
}

// Settings are the intervals and bounds of a Reconciler.
type Settings struct {
	Interval time.Duration // between two observations of a unit (requirement E1); 0: 5 s
	Observe  time.Duration // of one observation of a unit, however many hosts hang; 0: 20 s
	Poll     time.Duration // between two fetches without a webhook; 0: 1 min
	Flush    time.Duration // statuses are gathered this long before they are pushed; 0: 1 s
	// AuthorLag is how long a forge may take to name the pull request of a new commit.
	// After that the commit has none. 0: 20 s.
	AuthorLag        time.Duration
	ArtifactInterval time.Duration // between two verifications of one resource; 0: 1 h
	Usage            time.Duration // between two collections of what jobs used; 0: 1 h
	Retention        time.Duration // how long View finds a deleted instance; 0: 90 days; negative: not at all
	Workers          int           // units reconciled at a time, besides hanging ones; 0: 4
	MaxAttempts      int           // of a failing unit, until it waits for a new revision; 0: 10
	Dates            bool          // find the dates of documents in the background, for View
	Heartbeat        time.Duration // between two observations of a node's host (requirement E5); 0: 15 s
	NodeLimits       nodes.Limits  // after which a silent node is not ready or lost; zero: 45 s and 10 min
}

// withDefaults returns o with the defaults set.
func (o Options) withDefaults() Options {
	o.Branch = cmp.Or(o.Branch, "main")
	o.Settings.Interval = cmp.Or(o.Settings.Interval, 5*time.Second)
	o.Settings.Observe = cmp.Or(o.Settings.Observe, observeTimeout)
	o.Settings.Poll = cmp.Or(o.Settings.Poll, time.Minute)
	o.Settings.Flush = cmp.Or(o.Settings.Flush, time.Second)
	o.Settings.Workers = cmp.Or(o.Settings.Workers, 4)
	o.Settings.MaxAttempts = cmp.Or(o.Settings.MaxAttempts, 10)
	o.Settings.AuthorLag = cmp.Or(o.Settings.AuthorLag, 20*time.Second)
	o.Settings.ArtifactInterval = cmp.Or(o.Settings.ArtifactInterval, time.Hour)
	o.Settings.Heartbeat = cmp.Or(o.Settings.Heartbeat, 15*time.Second)
	o.Settings.NodeLimits = cmp.Or(o.Settings.NodeLimits, nodes.Limits{NotReady: 45 * time.Second, Lost: 10 * time.Minute})
	o.Settings.Usage = cmp.Or(o.Settings.Usage, time.Hour)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	return o
}
