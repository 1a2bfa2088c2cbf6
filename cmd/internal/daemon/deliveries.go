package daemon

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/reconciler"
	"berth/webhooks"
	"berth/webhooks/journal"
)

// deliveryQueue keeps the forge's deliveries to an estate from the moment they are
// acknowledged until the work they ask for is done, across restarts and crashes
// (requirement F2).
type deliveryQueue struct {
	*journal.Journal[work]
	debounce *debouncer[work]
	reruns   *reruns
	lastPush atomic.Int64 // time of the last delivery of a push, in Unix nanoseconds
	gaps     *prometheus.CounterVec
	age      *prometheus.HistogramVec
	since    time.Time // deliveries before were all found; the zero time: unknown
}

// openDeliveries opens the queue in the estate's cache. If the disk cannot be
// written, the daemon starts, and refuses deliveries until it can.
func (e *estate) openDeliveries(c *Config) error {
	j, err := journal.Open[work](journal.Options{Path: filepath.Join(c.Repository.Directory, "deliveries")})
	if err != nil {
		e.log.Error("delivery journal not writable; deliveries refused", "error", err)
	}
	q := &deliveryQueue{
		Journal: j, debounce: newDebouncer(e.wake), reruns: newReruns(), since: j.Mark(),
		gaps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_webhook_gaps_total", Help: "Changes missed by webhooks, by how they were found (delivery log or ref comparison).",
		}, []string{"found_by"}),
		age: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "berth_webhook_age_seconds", Help: "Age of the oldest delivery when its work was done.",
			Buckets: prometheus.ExponentialBuckets(0.01, 4, 9),
		}, []string{"task"}),
	}
	q.gaps.WithLabelValues("log")
	q.gaps.WithLabelValues("refs")
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	oldest := func(of func(work) bool) func() float64 {
		return func() float64 {
			if n, since := j.Waiting(of); n > 0 {
				return time.Since(since).Seconds()
			}
			return 0
		}
	}
	all := func(work) bool { return true }
	e.deliveries = q
	for _, m := range []prometheus.Collector{q.gaps, q.age,
		gauge("berth_webhook_works", "Work that deliveries asked for and that is not done yet.", func() float64 {
			n, _ := j.Waiting(all)
			return float64(n)
		}),
		gauge("berth_webhook_oldest_seconds", "Age of the oldest delivery whose work is not done yet.", oldest(all)),
		gauge("berth_ref_unobserved_seconds", "Age of the oldest delivered change of a branch that was not fetched yet.",
			oldest(func(w work) bool { return w.Do == reconciler.TaskEstate })),
	} {
		if err := e.reg.Register(m); err != nil {
			return fmt.Errorf("metrics: %w", err)
		}
	}
	return nil
}

// take keeps an authentic delivery and starts its work.
func (e *estate) take(d webhooks.Delivery) error {
	if leader := e.leaderURL(); leader != "" { // the leader finds it in the forge's log
		return fmt.Errorf("standing by; %s leads", leader)
	}
	if err := e.config.Load().concerns(d, e.log); err != nil {
		if _, keep := e.deliveries.Take(d.ID, nil); keep != nil {
			e.log.Debug("id of an ignored delivery not saved", "delivery", d.ID, "error", keep)
		}
		return err
	}
	works := workOf(d)
	known, err := e.deliveries.Take(d.ID, works)
	switch {
	case errors.Is(err, journal.ErrFull):
		return fmt.Errorf("%w: %w", webhooks.ErrFull, err)
	case known && len(works) > 0:
		return webhooks.ErrKnown
	case known:
		return nil
	}
	for _, w := range works {
		if w.Do == reconciler.TaskEstate {
			e.deliveries.lastPush.Store(time.Now().UnixNano())
		}
		e.deliveries.debounce.request(w)
	}
	return err
}

// wake starts work if a controller runs; the next controller starts it otherwise.
func (e *estate) wake(w work) {
	if d := e.running.Load(); d != nil {
		(&dispatcher{d.loop, d.forge, e.deliveries.requestChecks}).start(w)
	}
}

// requestChecks marks work that asks for checks as done once they are reported.
func (q *deliveryQueue) requestChecks(w work) {
	same := func(other work) bool { return other == w }
	done := q.begin(string(w.Do), same)
	q.reruns.request(w, done)
}

// begin returns a function that marks the matching work of now as done.
func (q *deliveryQueue) begin(task string, match func(work) bool) (done func()) {
	waiting, since := q.Waiting(match)
	end := q.Begin(match)
	return func() {
		end()
		if waiting > 0 {
			q.age.WithLabelValues(task).Observe(time.Since(since).Seconds())
		}
	}
}

// webhookDelay is how long a webhook may arrive after polling found its change
// without counting as lost.
const webhookDelay = 10 * time.Second

// reconciling is called when the loop begins an item; the function it returns, when
// the item ends.
func (e *estate) reconciling(i reconciler.Item) (ended func(done bool)) {
	q := e.deliveries
	if q == nil || i.Task == reconciler.TaskUnit || i.Task == reconciler.TaskArtifact { // no delivery asks for it
		return func(bool) {}
	}
	match := func(w work) bool { return w.item() == i && w.Commit == "" } // a rerun is done when it is reported
	var obsolete map[work]bool
	if i.Task == reconciler.TaskPulls {
		obsolete = e.obsoleteReruns()
	}
	waiting, _ := q.Waiting(match)
	finish, began, main := q.begin(string(i.Task), match), time.Now(), e.mainCommit()
	return func(done bool) {
		if !done {
			return
		}
		finish()
		e.dropReruns(obsolete)
		if now := e.mainCommit(); i.Task == reconciler.TaskEstate && waiting == 0 && main != "" && now != main {
			time.AfterFunc(e.webhookDelay, func() {
				if q.lastPush.Load() < began.UnixNano() {
					q.gaps.WithLabelValues("refs").Inc()
					e.log.Warn("commit found by polling only; check that the webhook is enabled and reaches this address", "commit", now)
				}
			})
		}
	}
}

// obsoleteReruns returns the requests to rerun checks on commits that are not the head of
// a pull request any more, so that nothing is reported on them.
func (e *estate) obsoleteReruns() map[work]bool {
	out := map[work]bool{}
	if d := e.running.Load(); d != nil {
		for _, w := range e.deliveries.Pending() {
			if w.Commit != "" && !d.loop.Shows(w.Commit) {
				out[w] = true
			}
		}
	}
	return out
}

// dropReruns drops the work that was obsolete before all pull requests were listed,
// and still is.
func (e *estate) dropReruns(obsolete map[work]bool) {
	if len(obsolete) == 0 {
		return
	}
	still := e.obsoleteReruns()
	e.deliveries.Begin(func(w work) bool { return obsolete[w] && still[w] })()
	for w := range obsolete {
		if still[w] {
			e.deliveries.reruns.drop(w.Commit)
		}
	}
}

// mainCommit returns the known commit of main; "" before the first.
func (e *estate) mainCommit() string {
	if d := e.running.Load(); d != nil {
		return d.loop.Main()
	}
	return ""
}
