package status

import (
	"context"
	"slices"
	"strings"
	"time"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/reconciler/rules"
	"berth/schema"
)

// ruleLog follows the event log for the rules in force (requirement E8). The lock of pending guards it.
type ruleLog struct {
	inForce []*schema.HookRule
	history *rules.History // nil before it is read
	sampler *rules.Sampler
	// meanwhile are the events that are recorded while the history is read; nil: it is not being read.
	meanwhile []plan.Event
}

func newRuleLog() *ruleLog { return &ruleLog{sampler: rules.NewSampler()} }

// record returns events, each followed by the firings of rules on it.
func (l *ruleLog) record(events []plan.Event) []plan.Event {
	if l.history != nil {
		events = l.history.Record(l.inForce, events...)
	}
	l.note(events)
	return events
}

// note keeps events that are recorded while the history is read.
func (l *ruleLog) note(events []plan.Event) {
	if l.meanwhile != nil {
		l.meanwhile = append(l.meanwhile, events...)
	}
}

// SetRules sets the rules in force. LoadRules was called before if there are any. Events that are recorded from now on make them
// fire.
func (w *Writer) SetRules(all []*schema.HookRule) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rules.inForce = all
}

// LoadRules reads what rules need to know of the events before, unless that is known. It costs the events of rules.Window, so that an
// estate without rules does not call it. If the log cannot be read whole, rules count from where it can: an unreadable line
// holds no decision.
func (w *Writer) LoadRules(ctx context.Context, all []*schema.HookRule) {
	w.mu.Lock()
	tip, isKnown := w.tip.commit, w.rules.history != nil && w.rules.history.Keeps(all)
	if !isKnown {
		w.rules.meanwhile = append([]plan.Event{}, w.events...)
	}
	w.mu.Unlock()
	if isKnown {
		return
	}
	before, err := EventsOfRules(ctx, w.o.Repo, tip, w.o.Now(), rules.NewHistory(all...).Counts)
	if err != nil && ctx.Err() == nil {
		w.o.Log.Warn("event log read in part; rules count events from where it could be read", "error", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	h, seen := rules.NewHistory(all...), map[string]bool{}
	for _, e := range slices.Concat(before, w.rules.meanwhile) {
		if !seen[e.EventID] {
			seen[e.EventID] = true
			h.Add(e)
		}
	}
	w.rules.history, w.rules.meanwhile = h, nil
}

// LastEvents returns the events of the last seven days on the branch, oldest first. After an error it returns those that could be
// read.
func (w *Writer) LastEvents() ([]plan.Event, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lastEventsTimeout)
	defer cancel()
	return EventsOfRules(ctx, w.o.Repo, w.Tip(), w.o.Now(), func(plan.Event) bool { return true })
}

// lastEventsTimeout bounds the reading of the event log for a pull request.
const lastEventsTimeout = 20 * time.Second

// EventsOfRules returns the events at a commit of berth/status that rules can look back on and that match, oldest first. After an
// error it returns those that could be read.
func EventsOfRules(
	ctx context.Context, repo any, commit string, now time.Time, matches func(plan.Event) bool,
) (out []plan.Event, err error) {
	log, ok := repo.(reconciler.EventReader)
	if !ok || commit == "" {
		return nil, nil
	}
	for e, failed := range log.EventsSince(ctx, commit, now.Add(-rules.Window)) {
		if failed != nil {
			err = failed
			break
		}
		if matches(e) {
			out = append(out, e)
		}
	}
	slices.Reverse(out)
	return out, err
}

// Sample records the events of a sample of a node's metrics. No values: the node did not answer.
func (w *Writer) Sample(node, revision string, values map[string]float64, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rules.history == nil {
		return
	}
	events := w.rules.sampler.Sample(w.rules.history, w.rules.inForce, node, revision, values, now)
	for i := range events {
		events[i].CorrelationID = reconciler.CorrelationID(revision)
	}
	if len(events) > 0 {
		w.addEvents(events...)
		w.urgent = true
		w.change("")
	}
}

// RecordDue records the changes of conditions that rules name, and the firings on waits that have ended at a time.
func (w *Writer) RecordDue(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rules.history == nil {
		return
	}
	if changes := w.changedConditions(now); len(changes) > 0 {
		w.addEvents(changes...)
		w.urgent = true
		w.change(changes[0].CorrelationID)
	}
	if firings := w.rules.history.Due(w.rules.inForce, now); len(firings) > 0 {
		w.rules.note(firings)
		w.events = append(w.p.events, firings...)
		w.urgent = true
		w.change(firings[0].CorrelationID)
	}
}

// changedConditions returns the events of the changes of conditions of units and nodes that rules name. The caller holds the lock.
func (w *Writer) changedConditions(now time.Time) []plan.Event {
	var all []rules.Conditions
	if rules.WatchesConditions(w.rules.inForce) {
		for _, s := range w.units.All() {
			if s.Phase != plan.PhaseDeleted { // its last event has ended all waits
				all = append(all, rules.Conditions{Key: s.Key, App: s.App, List: s.Conditions, Revision: s.Revision, CorrelationID: s.CorrelationID})
			}
		}
		for key, s := range w.resources {
			if key.Kind == schema.KindNode {
				all = append(all, rules.Conditions{Key: key, List: s.Conditions, Revision: s.Revision,
					CorrelationID: reconciler.CorrelationID(s.Revision)})
			}
		}
	}
	return w.rules.history.Changes(w.rules.inForce, all, now)
}

// PendingEffects returns the effects of durable firings that have no outcome yet.
func (w *Writer) PendingEffects() []rules.Pending {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rules.history == nil {
		return nil
	}
	return slices.DeleteFunc(w.rules.history.Pending(), func(p rules.Pending) bool {
		return slices.ContainsFunc(w.events, func(e plan.Event) bool { return e.EventID == p.Firing.EventID })
	})
}

// logFirings logs the firings among events that are on the remote.
func (w *Writer) logFirings(events []plan.Event) {
	for _, e := range events {
		f, ok := rules.Firing(e)
		if !ok {
			continue
		}
		log := w.o.Log.With("rule", f.Rule, "resource", strings.ToLower(f.ResourceKind)+" "+f.ResourceName, "trigger", f.TriggerType,
			"severity", f.Severity, "summary", f.Summary, "effects", f.Effect, "correlation_id", e.CorrelationID, "event_id", e.EventID)
		if f.Severity == "" || f.Severity == "info" {
			log.Info("rule fired")
		} else {
			log.Warn("rule fired")
		}
	}
}
