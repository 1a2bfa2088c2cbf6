package daemon

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/reconciler"
	"berth/webhooks"
	"berth/webhooks/github"
	"berth/webhooks/journal"
)

// deliveries are what the forge tells an estate, from the moment it is
// acknowledged until what it asked for was dealt with, whatever becomes of the
// process in between (requirement F2).
type deliveries struct {
	*journal.Journal[work]
	calm   *calm[work]
	reruns *reruns
	pushed atomic.Int64 // when a push was told of last, in Unix nanoseconds
	gaps   *prometheus.CounterVec
	took   *prometheus.HistogramVec

	since time.Time // what arrived before is swept up; the zero time: not known

	filling sync.Mutex     // one sweep at a time
	failed  map[string]int // by id: how often the forge would not show it to the sweep
}

// keepDeliveries opens what is kept of them, in the estate's cache. A disk that
// cannot be written keeps nobody from starting: deliveries are refused until it
// can be.
func (e *estate) keepDeliveries(c *config) error {
	path := filepath.Join(c.Repository.Directory, "deliveries")
	j, err := journal.Open[work](journal.Options{Path: path})
	if err != nil {
		e.log.Error("the journal of deliveries", "error", err)
	}
	d := &deliveries{
		Journal: j, calm: newCalm(e.wake), reruns: &reruns{of: map[string]*rerun{}}, since: j.Mark(), failed: map[string]int{},
		gaps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_webhook_gaps_total", Help: "What no webhook told of, by what found it: the forge's log of deliveries, or the ref itself.",
		}, []string{"found_by"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "berth_webhook_age_seconds", Help: "How old the oldest delivery was when what it asked for was dealt with.",
			Buckets: prometheus.ExponentialBuckets(0.01, 4, 9),
		}, []string{"task"}),
	}
	d.gaps.WithLabelValues("log")
	d.gaps.WithLabelValues("refs")
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	age := func(of func(work) bool) func() float64 {
		return func() float64 {
			if n, since := j.Waiting(of); n > 0 {
				return time.Since(since).Seconds()
			}
			return 0
		}
	}
	e.deliveries = d
	for _, m := range []prometheus.Collector{d.gaps, d.took,
		gauge("berth_webhook_works", "What deliveries asked for and was not dealt with yet.", func() float64 {
			n, _ := j.Waiting(func(work) bool { return true })
			return float64(n)
		}),
		gauge("berth_webhook_oldest_seconds", "Age of the oldest delivery that was not dealt with yet.", age(func(work) bool { return true })),
		gauge("berth_ref_unobserved_seconds", "Age of the oldest change of a branch that was told of and not looked at yet.",
			age(func(w work) bool { return w.Do == reconciler.TaskEstate })),
	} {
		if err := e.reg.Register(m); err != nil {
			return fmt.Errorf("metrics: %w", err)
		}
	}
	return nil
}

// take keeps a delivery that the estate's own secret has signed, and has what it
// asks for looked at.
func (e *estate) take(d webhooks.Delivery) error {
	if err := e.config.Load().concerns(d, e.log); err != nil {
		if _, keep := e.deliveries.Take(d.ID, nil); keep != nil {
			e.log.Debug("a delivery of no concern is not remembered", "delivery", d.ID, "error", keep)
		}
		return err
	}
	works := worksOf(d)
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
			e.deliveries.pushed.Store(time.Now().UnixNano())
		}
		e.deliveries.calm.ask(w)
	}
	return err
}

// wake has work looked at, now if the estate is up; else when it is.
func (e *estate) wake(w work) {
	if d := e.up.Load(); d != nil {
		(&waker{d.loop, d.forge, e.deliveries.asked}).wake(w)
	}
}

// asked has a work that asks for checks done once they are shown.
func (d *deliveries) asked(w work) {
	is := func(other work) bool { return other == w }
	waiting, since := d.Waiting(is)
	end := d.Begin(is)
	d.reruns.asked(w, func() {
		end()
		if waiting > 0 {
			d.took.WithLabelValues(string(w.Do)).Observe(time.Since(since).Seconds())
		}
	})
}

// unshown are the works that ask for checks of a commit on which nothing is shown:
// it is no head of a pull request any more.
func (e *estate) unshown() map[work]bool {
	out := map[work]bool{}
	if d := e.up.Load(); d != nil {
		for _, w := range e.deliveries.Pending() {
			if w.Commit != "" && !d.loop.Shows(w.Commit) {
				out[w] = true
			}
		}
	}
	return out
}

// resume has looked at what an earlier daemon was told of and did not deal with.
func (e *estate) resume() {
	if e.deliveries == nil {
		return
	}
	for _, w := range e.deliveries.Pending() {
		e.wake(w)
	}
}

// lateness is how long a webhook may take longer than a look of our own without
// counting as lost.
const lateness = 10 * time.Second

// looking is told what the loop looks at.
func (e *estate) looking(i reconciler.Item) func(dealtWith bool) {
	d := e.deliveries
	if d == nil || i.Task == reconciler.TaskUnit || i.Task == reconciler.TaskArtifact { // of which no delivery tells
		return func(bool) {}
	}
	of := func(w work) bool { return w.item() == i && w.Commit == "" } // that one is done when it is shown
	var unshown map[work]bool
	if i.Task == reconciler.TaskPulls {
		unshown = e.unshown()
	}
	waiting, since := d.Waiting(of)
	end, begun, main := d.Begin(of), time.Now(), e.main()
	return func(dealtWith bool) {
		if !dealtWith {
			return
		}
		end()
		if waiting > 0 {
			d.took.WithLabelValues(string(i.Task)).Observe(time.Since(since).Seconds())
		}
		if len(unshown) > 0 { // nor is it now that all of them were listed
			still := e.unshown()
			d.Begin(func(w work) bool { return unshown[w] && still[w] })()
			for w := range unshown {
				if still[w] {
					d.reruns.gone(w.Commit)
				}
			}
		}
		if now := e.main(); i.Task == reconciler.TaskEstate && waiting == 0 && main != "" && now != main {
			time.AfterFunc(e.late, func() {
				if d.pushed.Load() < begun.UnixNano() {
					d.gaps.WithLabelValues("refs").Inc()
					e.log.Warn("no webhook told of a commit: is it on, and does it reach this address?", "commit", now)
				}
			})
		}
	}
}

// main is the commit of main that is known; "" before the first.
func (e *estate) main() string {
	if d := e.up.Load(); d != nil {
		return d.loop.Main()
	}
	return ""
}

// deliveryLog is a forge's own record of what it delivered, or tried to.
type deliveryLog interface {
	Deliveries(ctx context.Context, since time.Time) ([]github.Delivery, error)
	Delivery(ctx context.Context, d github.Delivery) (event string, payload []byte, err error)
}

const (
	sweepEvery  = 3 * time.Minute
	sweepFirst  = time.Hour          // back from the start, where nothing is remembered
	sweepBefore = 3 * 24 * time.Hour // at most: what the forge keeps
	sweepBack   = 10 * time.Minute   // before what was swept up last
	sweepRead   = 50                 // deliveries are read; of more, everything is looked at
	sweepAsked  = 500                // of more, those are still read by which somebody asked for checks
	sweepTries  = 3                  // to read one, each in another sweep
	sweepFails  = 3                  // in a row are no matter of one delivery
)

// forgesLog is the log of the estate's forge; nil while there is none.
func (e *estate) forgesLog() deliveryLog {
	if d := e.up.Load(); d != nil && d.forge != nil {
		return d.forge
	}
	return nil
}

// sweep looks for deliveries that did not arrive, now and then until ctx ends. Up to
// when all were found is kept, so that what a pause of any length left out is found
// after it.
func (e *estate) sweep(ctx context.Context, log func() deliveryLog) error {
	since := time.Now().Add(-sweepFirst)
	if mark := e.deliveries.since; !mark.IsZero() {
		since = mark.Add(-sweepBack)
	}
	wait, trouble := time.Second, ""
	for {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
		from := log()
		if from == nil {
			continue
		}
		wait = sweepEvery
		began := time.Now()
		if earliest := began.Add(-sweepBefore); since.Before(earliest) {
			since = earliest
		}
		err := e.fill(ctx, from, since)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			since, trouble = began.Add(-sweepBack), ""
			e.deliveries.SetMark(began)
		case err.Error() != trouble: // once, not every time: it may not be allowed
			trouble = err.Error()
			e.log.Warn("cannot look for lost deliveries; polling finds what they told of", "error", err)
		}
	}
}

// fill takes in the deliveries since a time that did not arrive, as if they had. An
// error means that some are left, and are found when it is called again.
func (e *estate) fill(ctx context.Context, log deliveryLog, since time.Time) error {
	e.deliveries.filling.Lock()
	defer e.deliveries.filling.Unlock()
	tried, err := log.Deliveries(ctx, since)
	switch {
	case errors.Is(err, github.ErrLogTooLong): // what is beyond is never read
		e.log.Warn("the forge tried to deliver more than can be listed; looking at everything", "since", since)
		if err := e.everything(); err != nil {
			return err
		}
	case err != nil:
		return err
	}
	lost := e.lost(tried)
	if len(lost) == 0 {
		return nil
	}
	e.log.Warn("the forge tried to deliver what did not arrive; it is taken in", "deliveries", len(lost), "first", lost[0].When, "answered", lost[0].Code)
	if len(lost) > sweepRead {
		var rest []github.Delivery
		if lost, rest = asking(lost); len(lost) > sweepAsked {
			e.log.Warn("more checks were asked for again than can be read; ask once more for those that are not shown", "left_out", len(lost)-sweepAsked)
			over := len(lost) - sweepAsked // the newest are still waited for
			lost, rest = lost[over:], append(rest, lost[:over]...)
		}
		if err := e.instead(rest...); err != nil {
			return err
		}
	}
	var failures []error
	for _, t := range lost {
		event, payload, err := log.Delivery(ctx, t)
		var later *reconciler.RetryAfterError
		switch {
		case err == nil:
			delete(e.deliveries.failed, t.GUID)
		case ctx.Err() != nil, errors.As(err, &later):
			return err
		default:
			if e.deliveries.failed[t.GUID]++; e.deliveries.failed[t.GUID] < sweepTries {
				if failures = append(failures, err); len(failures) >= sweepFails {
					return errors.Join(failures...)
				}
				continue
			}
			e.log.Warn("the forge does not show a delivery; looking at everything instead", "event", t.Event, "delivery", t.GUID, "error", err)
			if err := e.instead(t); err != nil {
				return err
			}
			delete(e.deliveries.failed, t.GUID)
			continue
		}
		d, err := github.ReadLogged(t.GUID, event, payload)
		if err != nil {
			e.log.Warn("cannot read a delivery; looking at everything instead", "event", event, "delivery", t.GUID, "error", err)
		}
		switch err := e.take(d); {
		case errors.Is(err, webhooks.ErrForeign), errors.Is(err, webhooks.ErrOwn), errors.Is(err, webhooks.ErrKnown):
		case err != nil:
			return err
		case len(d.Events) > 0:
			e.deliveries.gaps.WithLabelValues("log").Inc()
		}
	}
	return errors.Join(failures...)
}

// lost are the deliveries of a log that may wake somebody and did not arrive, the
// oldest first. What is too long ago to be remembered arrived if the log says so.
func (e *estate) lost(tried []github.Delivery) []github.Delivery {
	arrived := map[string]bool{}
	for _, t := range tried {
		if t.Code/100 == 2 {
			arrived[t.GUID] = true
		}
	}
	remembers := e.deliveries.CompleteSince()
	var lost []github.Delivery
	seen := map[string]bool{}
	for _, t := range slices.Backward(tried) {
		switch {
		case seen[t.GUID], !github.IsEventRead(t.Event), e.deliveries.Knows(t.GUID):
		case t.When.Before(remembers) && arrived[t.GUID]:
		default:
			seen[t.GUID] = true
			lost = append(lost, t)
		}
	}
	return lost
}

// asking parts the deliveries by which somebody asked for checks again from the
// others: looking at everything does not find these.
func asking(all []github.Delivery) (asking, others []github.Delivery) {
	for _, t := range all {
		if (t.Event == "check_run" || t.Event == "check_suite") && (t.Action == "rerequested" || t.Action == "requested_action") {
			asking = append(asking, t)
		} else {
			others = append(others, t)
		}
	}
	return asking, others
}

// instead has everything looked at instead of reading deliveries.
func (e *estate) instead(of ...github.Delivery) error {
	if len(of) == 0 {
		return nil
	}
	if err := e.everything(); err != nil {
		return err
	}
	for _, t := range of {
		if _, err := e.deliveries.Take(t.GUID, nil); err != nil {
			return err
		}
		e.deliveries.gaps.WithLabelValues("log").Inc()
	}
	return nil
}

// everything has everything looked at.
func (e *estate) everything() error {
	return e.take(webhooks.Delivery{Events: []webhooks.Event{{Kind: webhooks.Unread}}})
}
