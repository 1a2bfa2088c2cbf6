package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"time"

	"berth/reconciler/loop"
	"berth/reconciler/plan"
	"berth/reconciler/rules"
	"berth/runtimes"
	"berth/schema/event"
)

// firedOn is the event on which the rule of a wide estate fires, with one webhook.
const firedOn = event.InstanceRunning

func ruleFiles() map[string]string {
	return map[string]string{"platform/hooks/up.yaml": `apiVersion: berth/v1
kind: HookRule
metadata: {name: up}
spec: {when: {event: ` + string(firedOn) + `}, then: [{webhook: {url: "https://pager.example/x"}}], cooldown_seconds: 0}
`}
}

// setHostClocks sets the clock of each host off by at most five minutes. The caller has the lock.
func (s *simulation) setHostClocks() {
	for _, n := range nodeNames() {
		off := time.Duration(s.draw("clock of "+n, 0).IntN(600)-300) * time.Second
		s.world.SetFacts(n, func(f *runtimes.HostFacts) { f.At = f.At.Add(off) })
	}
}

// EventsSince implements reconciler.EventReader.
func (m *mirror) EventsSince(ctx context.Context, commit string, since time.Time) iter.Seq2[plan.Event, error] {
	return func(yield func(plan.Event, error) bool) {
		if m.daemon.isDead(ctx) {
			yield(plan.Event{}, errGone)
			return
		}
		m.sim.mu.Lock()
		batches := m.sim.remote.batches
		m.sim.mu.Unlock()
		isAfter := true
		for n, b := range slices.Backward(batches) {
			if isAfter = isAfter && statusID(n+1) != commit; isAfter {
				continue
			}
			for _, e := range slices.Backward(b.Events) {
				if !e.OccurredAt.Before(since) && !yield(e, nil) {
					return
				}
			}
		}
	}
}

// receive is the receiver of the webhooks of a daemon, with the fault of the call. It knows a request that it has by its id.
func (s *simulation) receive(d *daemon) func(context.Context, loop.Webhook) (again bool, err error) {
	return func(ctx context.Context, w loop.Webhook) (bool, error) {
		fault := s.call(ctx, d, "webhook", "crash before", "crash after", "refused", "lost", "slow")
		s.mu.Lock()
		defer s.mu.Unlock()
		if fault == "crash before" {
			d.crash()
		}
		if d.isDead(ctx) || fault == "refused" {
			return true, errGone
		}
		s.tracef("%s: webhook %s", d.name, w.ID)
		s.received[w.ID] = true
		if fault == "crash after" {
			d.crash()
		}
		if d.isDead(ctx) || fault == "lost" {
			return true, errGone
		}
		return false, nil
	}
}

// outcomes counts the outcomes of an effect.
type outcomes struct {
	effect string
	count  int
}

// checkRules: each event that the rule is about has one firing in the same commit, each effect of a firing has one outcome, and
// none is done before its firing is durable (I13).
func (s *simulation) checkRules(n int) {
	fired := map[string]int{} // by event
	for _, e := range s.remote.batches[n].Events {
		if s.holds {
			s.checkConditions(e)
		}
		f, isFiring := rules.Firing(e)
		switch {
		case e.EventType == string(firedOn):
			fired[e.EventID] += 0
		case isFiring:
			if f.TriggerType == string(firedOn) {
				fired[f.TriggerID]++
			}
			s.checker.firings[e.EventID+"-0"] = &outcomes{effect: f.Effect}
		case e.EventType == string(event.RuleDone), e.EventType == string(event.RuleFailed):
			var p event.Rule
			if err := json.Unmarshal(e.Payload, &p); err != nil {
				s.violate("I13", "outcome %s: %v", e.EventID, err)
			}
			id := p.FiringID + "-0"
			o := s.checker.firings[id]
			if o == nil {
				s.violate("I13", "effect %s has an outcome and no firing", id)
				continue
			}
			if o.count++; o.count > 1 {
				s.violate("I13", "effect %s has a second outcome", id)
			}
			if e.EventType == string(event.RuleFailed) && !effectMayFail(p) {
				s.violate("I13", "effect %s failed: %s", id, e.Payload)
			}
		}
	}
	for id, count := range fired {
		if count != 1 {
			s.violate("I13", "%d firings on event %s", count, id)
		}
	}
	for id := range s.received {
		if _, ok := s.checker.firings[id]; !ok {
			s.violate("I13", "webhook %s has no firing", id)
		}
	}
}

// undone returns an effect that has no outcome, or was not done; "" if there is none. The caller has the lock.
func (s *simulation) undone() string {
	for id, o := range s.checker.firings {
		isDone := o.effect == string(plan.Hold) || s.received[id]
		if o.count == 0 || !isDone {
			return fmt.Sprintf("%s of firing %s has %d outcomes, done: %t", o.effect, id, o.count, isDone)
		}
	}
	return ""
}
