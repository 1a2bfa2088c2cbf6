package loop

import (
	"log/slog"
	"time"

	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/pulls"
	"berth/runtimes"
	"berth/schema"
	"berth/schema/estate"
)

// Options configure a Reconciler. A zero duration or count takes the default in its
// comment.
type Options struct {
	Branch   string // that pull requests are merged to: main
	Repo     reconciler.Repo
	Forge    reconciler.Forge // nil: no forge
	Render   pulls.Render     // texts for the forge; required with a forge
	Loader   *estate.Loader
	Runtimes map[string]runtimes.Runtime // by runtime_backend

	// Authority decides the permissions for each change; nil: a user who can push to main
	// may change everything.
	Authority *decide.Authority
	// Rules are rules about a change of the estate, besides the core's own.
	Rules []func(before, after *schema.Desired) []schema.Diagnostic
	// AuthorLag is how long a forge may take to name the pull request of a new commit.
	// After that the commit has none: 20 s.
	AuthorLag time.Duration
	// Accept is a commit of main whose documents the operator permits, although berth/in-
	// force, the record of held documents, is lost; "": none.
	Accept string

	Artifacts        runtimes.Artifacts // verifies published bytes; nil: bytes are not verified
	ArtifactInterval time.Duration      // between two verifications of one resource: 1 h

	Dates     bool          // find the dates of documents in the background, for View
	Retention time.Duration // how long View finds a deleted instance: 90 days; negative: not at all

	Interval    time.Duration // between two observations of a unit (requirement E1): 5 s
	Poll        time.Duration // between two fetches without a webhook: 60 s
	Flush       time.Duration // statuses are gathered this long before they are pushed: 1 s
	Workers     int           // units reconciled at a time, besides hanging ones: 4
	MaxAttempts int           // of a failing unit, until it waits for a new revision: 10
	Log         *slog.Logger
	Now         func() time.Time
	Metrics     *Metrics        // nil: not registered
	Owed        reconciler.Owed // keeps audit records until they are written; nil: no record is owed
	// Looking is called before each reconciliation of an item, and its result after
	// it: with false if the item is retried. Nil: not called.
	Looking func(reconciler.Item) (ended func(done bool))
}

// withDefaults returns o with the defaults set.
func (o Options) withDefaults() Options {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&o.Interval, 5*time.Second)
	def(&o.Poll, time.Minute)
	def(&o.Flush, time.Second)
	def(&o.AuthorLag, 20*time.Second)
	def(&o.ArtifactInterval, time.Hour)
	if o.Workers == 0 {
		o.Workers = 4
	}
	if o.MaxAttempts == 0 {
		o.MaxAttempts = 10
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	if o.Branch == "" {
		o.Branch = "main"
	}
	return o
}
