package daemon

import (
	"context"
	"errors"
	"slices"
	"time"

	"berth/reconciler"
	"berth/webhooks"
	"berth/webhooks/forge"
)

const (
	gapInterval    = 3 * time.Minute
	gapFirst       = time.Hour          // period read at the start, without a saved time
	gapMost        = 3 * 24 * time.Hour // read back at most: as long as the forge keeps its log
	gapOverlap     = 10 * time.Minute   // read again before the last time
	maxRead        = 50                 // deliveries read one by one; if there are more, everything is reconciled
	maxReadReruns  = 500                // reruns read one by one: reconciling everything does not find them
	maxReadTries   = 3                  // for one delivery, each in another run
	maxReadFailure = 3                  // failures in a row: the forge has a problem, not one delivery
)

// gapFiller finds deliveries that did not arrive, in the forge's log, and takes them
// as if they had. One goroutine uses it.
type gapFiller struct {
	*estate
	failed map[string]int // by delivery id: how often it could not be read
}

func newGapFiller(e *estate) *gapFiller { return &gapFiller{e, map[string]int{}} }

// forgeLog returns the log of the estate's forge; nil: no controller runs, or another daemon leads.
func (e *estate) forgeLog() forge.Log {
	if d := e.running.Load(); d != nil && d.forge != nil && d.loop.LeaderURL() == "" {
		return d.forge
	}
	return nil
}

// run fills gaps at intervals until ctx ends. It saves the time up to which all
// deliveries were found, so that it finds those of a pause of any length.
func (g *gapFiller) run(ctx context.Context, log func() forge.Log) error {
	since := time.Now().Add(-gapFirst)
	if mark := g.deliveries.since; !mark.IsZero() {
		since = mark.Add(-gapOverlap)
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
		wait = gapInterval
		began := time.Now()
		if earliest := began.Add(-gapMost); since.Before(earliest) {
			since = earliest
		}
		err := g.fill(ctx, from, since)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			since, trouble = began.Add(-gapOverlap), ""
			g.deliveries.SetMark(began)
		case err.Error() != trouble: // once: the permission to read the log may be missing
			trouble = err.Error()
			g.log.Warn("delivery log unreadable; lost deliveries are found by polling only", "error", err)
		}
	}
}

// fill takes the deliveries since a time that did not arrive. After an error some are
// left; the next call finds them.
func (g *gapFiller) fill(ctx context.Context, log forge.Log, since time.Time) error {
	tried, err := log.Deliveries(ctx, since)
	switch {
	case errors.Is(err, forge.ErrLogTooLong): // the rest is never read
		g.log.Warn("delivery log too long to read; reconciling everything", "since", since)
		if err := g.reconcileAll(); err != nil {
			return err
		}
	case err != nil:
		return err
	}
	lost := g.lost(tried)
	if len(lost) == 0 {
		return nil
	}
	g.log.Warn("lost deliveries found in the forge's log", "deliveries", len(lost), "first", lost[0].When, "answered", lost[0].Code)
	lost, rest := bounded(lost)
	if err := g.leaveOut(rest); err != nil {
		return err
	}
	var failures []error
	for _, t := range lost {
		if err := g.fetch(ctx, log, t); err != nil {
			var unread *readError
			if !errors.As(err, &unread) {
				return err
			}
			if failures = append(failures, err); len(failures) >= maxReadFailure {
				break
			}
		}
	}
	return errors.Join(failures...)
}

// leaveOut reconciles everything in place of deliveries that are too many to take.
func (g *gapFiller) leaveOut(rest []forge.Logged) error {
	if len(rest) == 0 {
		return nil
	}
	if n := len(slices.DeleteFunc(slices.Clone(rest), func(t forge.Logged) bool { return !t.IsRerun })); n > 0 {
		g.log.Warn("too many check reruns requested; request missing checks once more", "left_out", n)
	}
	return g.replace(rest...)
}

// readError is about one delivery that the forge did not return.
type readError struct{ error }

func (e *readError) Unwrap() error { return e.error }

// fetch reads one delivery from the log and takes it. After several failures it
// reconciles everything instead.
func (g *gapFiller) fetch(ctx context.Context, log forge.Log, t forge.Logged) error {
	d, err := log.Delivery(ctx, t)
	isUnread := errors.Is(err, forge.ErrUnread)
	var later *reconciler.RetryAfterError
	if err != nil && (ctx.Err() != nil || errors.As(err, &later)) {
		return err
	}
	if err != nil && !isUnread {
		if g.failed[t.ID]++; g.failed[t.ID] < maxReadTries {
			return &readError{err}
		}
		g.log.Warn("delivery not readable at the forge; reconciling everything instead", "event", t.Event, "delivery", t.ID, "error", err)
		if err := g.replace(t); err != nil {
			return err
		}
		delete(g.failed, t.ID)
		return nil
	}
	delete(g.failed, t.ID)
	if isUnread {
		g.log.Warn("delivery not understood; reconciling everything instead", "event", t.Event, "delivery", t.ID, "error", err)
	}
	switch err := g.take(d); {
	case errors.Is(err, webhooks.ErrForeign), errors.Is(err, webhooks.ErrOwn), errors.Is(err, webhooks.ErrKnown):
	case err != nil:
		return err
	case len(d.Events) > 0:
		g.deliveries.gaps.WithLabelValues("log").Inc()
	}
	return nil
}

// lost returns the deliveries of a log that may ask for work and did not arrive, the
// oldest first. For those older than the saved ids, the log says whether they arrived.
func (g *gapFiller) lost(tried []forge.Logged) []forge.Logged {
	arrived := map[string]bool{}
	for _, t := range tried {
		if t.Code/100 == 2 {
			arrived[t.ID] = true
		}
	}
	remembers := g.deliveries.CompleteSince()
	var lost []forge.Logged
	seen := map[string]bool{}
	for _, t := range slices.Backward(tried) {
		switch {
		case seen[t.ID], t.IsIgnored, g.deliveries.Knows(t.ID):
		case t.When.Before(remembers) && arrived[t.ID]:
		default:
			seen[t.ID] = true
			lost = append(lost, t)
		}
	}
	return lost
}

// bounded returns the deliveries to read one by one, and the rest: reconciling
// everything does their work, except that of reruns.
func bounded(all []forge.Logged) (read, rest []forge.Logged) {
	if len(all) <= maxRead {
		return all, nil
	}
	for _, t := range all {
		if t.IsRerun {
			read = append(read, t)
		} else {
			rest = append(rest, t)
		}
	}
	if over := len(read) - maxReadReruns; over > 0 { // users still wait for the newest
		read, rest = read[over:], append(rest, read[:over]...)
	}
	return read, rest
}

// replace reconciles everything instead of reading deliveries.
func (g *gapFiller) replace(deliveries ...forge.Logged) error {
	if err := g.reconcileAll(); err != nil {
		return err
	}
	for _, t := range deliveries {
		if _, err := g.deliveries.Take(t.ID, nil); err != nil {
			return err
		}
		g.deliveries.gaps.WithLabelValues("log").Inc()
	}
	return nil
}

func (g *gapFiller) reconcileAll() error {
	return g.take(webhooks.Delivery{Events: []webhooks.Event{{Kind: webhooks.Unread}}})
}
