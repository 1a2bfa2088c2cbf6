package loop

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"berth/reconciler/rules"
	"berth/schema"
	"berth/schema/audit"
)

const (
	// effectSlots is how many effects of rules are carried out at a time.
	effectSlots = 8
	// effectAge is the time after its event until which an effect is tried.
	effectAge = 24 * time.Hour
	// firstEffectRetry and maxEffectRetry bound the delay before an effect is tried again; it doubles.
	firstEffectRetry, maxEffectRetry = time.Second, 5 * time.Minute
)

// Webhook is a request that a rule has sent. Body is the event of the firing, as berth/status has it.
type Webhook struct {
	URL, Secret string // Secret is the name of the key that signs the body; "": unsigned
	ID          string // the same for each try
	Body        []byte
}

// ruleEffects carries out the effects of firings that are durable on berth/status (requirement E8). Which effects are due follows
// from the event log alone: those of a firing without an outcome. An effect may be tried again after a crash, with the same id.
type ruleEffects struct {
	*recorder
	inForce *inForce
	send    func(context.Context, Webhook) (again bool, err error) // nil: webhooks are not configured
	actions ruleActions
	// interval is the time between two checks for firings that are due.
	interval time.Duration
	slots    chan struct{}
}

type effectKey struct {
	firing string
	number int
}

func newRuleEffects(o *Options, r *recorder, f *inForce, a ruleActions) *ruleEffects {
	return &ruleEffects{recorder: r, inForce: f, send: o.Hooks.Webhook, actions: a, interval: o.Settings.Heartbeat,
		slots: make(chan struct{}, effectSlots)}
}

// run carries out effects until ctx ends, and has due firings found. An effect is due once its firing is on the branch, which moves
// the tip.
func (e *ruleEffects) run(ctx context.Context) {
	select {
	case <-e.inForce.ready:
	case <-ctx.Done():
		return
	}
	tick := time.NewTicker(e.interval)
	defer tick.Stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	begun := map[effectKey]bool{}
	for ctx.Err() == nil {
		_, moved, _ := e.status.FollowTip()
		due := map[effectKey]bool{}
		for _, p := range e.status.PendingEffects() {
			key := effectKey{p.Firing.EventID, p.Number}
			if due[key] = true; !begun[key] {
				wg.Go(func() { e.carryOut(ctx, p) })
			}
		}
		begun = due // an effect that is not due any more has its outcome
		select {
		case <-moved:
		case <-tick.C:
			e.status.RecordDue(e.now())
		case <-ctx.Done():
		}
	}
}

// carryOut tries an effect until it has an outcome, which it records.
func (e *ruleEffects) carryOut(ctx context.Context, p rules.Pending) {
	for wait := firstEffectRetry; ; wait = min(2*wait, maxEffectRetry) {
		select {
		case e.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		again, refusals, err := e.try(ctx, p)
		<-e.slots
		if ctx.Err() != nil {
			return
		}
		if err == nil || !again || e.now().Sub(p.Firing.OccurredAt) > effectAge {
			e.finish(p, refusals, err)
			return
		}
		e.log.Info("effect of a rule is tried again", "firing", p.Firing.EventID, "error", err, "again_in", wait)
		if !sleep(ctx, wait) {
			return
		}
	}
}

// finish records the outcome of an effect, and the audit records of refused operations in the same commit.
func (e *ruleEffects) finish(p rules.Pending, refusals []audit.Record, err error) {
	f, _ := rules.Firing(p.Firing)
	name, reason := strings.Split(f.Effect, ", ")[p.Number], ""
	log := e.log.With("rule", f.Rule, "effect", name, "resource", f.ResourceName, "firing", f.FiringID, "correlation_id",
		p.Firing.CorrelationID)
	if err != nil {
		reason = err.Error()
		log.Warn("effect of a rule not done", "error", reason)
	} else {
		log.Info("effect of a rule done")
	}
	e.status.Decision.Lock()
	defer e.status.Decision.Unlock()
	e.status.Record(refusals...)
	e.status.Announce(rules.Outcome(p.Firing, p.Number, name, reason, e.now()))
}

// try carries out an effect once. again: another try may help. refusals are the audit records of operations that were refused.
func (e *ruleEffects) try(ctx context.Context, p rules.Pending) (again bool, refusals []audit.Record, err error) {
	rule, effect := e.find(p)
	if rule == nil {
		return false, nil, fmt.Errorf("the rule was changed or removed before its effect was done")
	}
	switch {
	case effect.Webhook != nil && e.send == nil:
		return false, nil, fmt.Errorf("no webhook is sent: add its host to rules.hosts in berth.yaml")
	case effect.Webhook != nil:
		body, err := json.Marshal(p.Firing)
		if err != nil {
			return false, nil, err
		}
		again, err = e.send(ctx, Webhook{URL: effect.Webhook.URL, Secret: effect.Webhook.Secret,
			ID: fmt.Sprintf("%s-%d", p.Firing.EventID, p.Number), Body: body})
		return again, nil, err
	}
	return e.actions.try(ctx, rule, effect.Action.Operation, p.Firing)
}

// find returns the rule in force of an effect and the effect; nil if the rule has it no more.
func (e *ruleEffects) find(p rules.Pending) (*schema.HookRule, *schema.HookEffect) {
	f, _ := rules.Firing(p.Firing)
	for _, r := range e.inForce.current().Desired.HookRules() {
		if r.ID() != f.RuleID || r.Effects() != f.Effect {
			continue
		}
		n := 0
		for i := range r.Spec.Then {
			if r.Spec.Then[i].String() == "" {
				continue
			}
			if n == p.Number {
				return r, &r.Spec.Then[i]
			}
			n++
		}
	}
	return nil, nil
}
