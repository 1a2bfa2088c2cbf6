package rules_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth/reconciler/nodes"
	"berth/reconciler/plan"
	"berth/reconciler/rules"
	"berth/schema"
	"berth/schema/event"
)

var start = time.Date(2026, 7, 1, 8, 0, 0, 0, time.UTC)

func rule(name string, when schema.HookWhen, change ...func(*schema.HookRule)) *schema.HookRule {
	r := &schema.HookRule{Spec: schema.HookRuleSpec{When: when,
		Then: []schema.HookEffect{{Alert: &schema.HookAlert{Severity: "warning", Summary: "look at it"}}}}}
	r.Key = schema.Key{Kind: schema.KindHookRule, Name: name}
	for _, c := range change {
		c(r)
	}
	return r
}

func onEvent(t event.Type) schema.HookWhen { return schema.HookWhen{Event: string(t)} }

func onFailures(n, within int) schema.HookWhen {
	return schema.HookWhen{RepeatedFailure: &schema.RepeatedFailure{Count: n, WithinSeconds: within}}
}

func cooldown(seconds int) func(*schema.HookRule) {
	return func(r *schema.HookRule) { r.Spec.CooldownSeconds = seconds }
}

// instanceEvent is an event of an instance, some seconds after the start.
func instanceEvent(t event.Type, name string, after int) plan.Event {
	payload, _ := json.Marshal(event.Instance{OrgID: "physics", ProjectID: "physics.lhc", AppSlug: "slurm",
		ResourceName: "physics.lhc/" + name, Revision: "abc"})
	return plan.Event{EventID: fmt.Sprintf("%032x", after*1000+len(name)), EventType: string(t), CorrelationID: "c1", Payload: payload,
		OccurredAt: start.Add(time.Duration(after) * time.Second)}
}

// firings returns the firings among the events that are recorded.
func firings(h *rules.History, all []*schema.HookRule, events ...plan.Event) (out []event.Rule) {
	for _, e := range h.Record(all, events...) {
		if f, ok := rules.Firing(e); ok {
			out = append(out, f)
		}
	}
	return out
}

func TestRuleFiresOnItsEvent(t *testing.T) {
	r := rule("failed", onEvent(event.InstanceFailed))
	failed := instanceEvent(event.InstanceFailed, "train", 1)
	out := rules.NewHistory().Record([]*schema.HookRule{r}, instanceEvent(event.InstanceRunning, "train", 0), failed)
	require.Len(t, out, 3)
	f, ok := rules.Firing(out[2])
	require.True(t, ok)
	require.Equal(t, event.Rule{
		OrgID: "physics", ProjectID: "physics.lhc", AppSlug: "slurm", ResourceKind: "Instance", ResourceName: "physics.lhc/train",
		Rule: "failed", RuleID: "failed", FiringID: out[2].EventID, TriggerID: failed.EventID, TriggerType: "apps.instance.failed",
		Severity: "warning", Summary: "look at it", Status: "fired", Revision: "abc",
	}, f)
	require.Equal(t, failed.OccurredAt, out[2].OccurredAt)
	require.Equal(t, "c1", out[2].CorrelationID)
}

func TestRuleCoversItsAppsAndProjects(t *testing.T) {
	failed := instanceEvent(event.InstanceFailed, "train", 0)
	for name, one := range map[string]struct {
		apps, to []string
		want     int
	}{
		"everything":         {nil, nil, 1},
		"the app":            {[]string{"slurm"}, nil, 1},
		"another app":        {[]string{"other"}, nil, 0},
		"the tenant":         {nil, []string{"physics"}, 1},
		"the project":        {nil, []string{"physics.lhc"}, 1},
		"another tenant":     {nil, []string{"chem"}, 0},
		"tenant but not app": {[]string{"other"}, []string{"physics"}, 0},
	} {
		r := rule("r", onEvent(event.InstanceFailed), func(r *schema.HookRule) { r.Spec.Apps, r.Spec.AppliesTo = one.apps, one.to })
		require.Len(t, firings(rules.NewHistory(), []*schema.HookRule{r}, failed), one.want, name)
	}
	node, _ := json.Marshal(event.Node{ResourceName: "n1"})
	lost := plan.Event{EventID: "1", EventType: string(event.NodeLost), OccurredAt: start, Payload: node}
	r := rule("r", onEvent(event.NodeLost))
	require.Len(t, firings(rules.NewHistory(), []*schema.HookRule{r}, lost), 1)
	r.Spec.AppliesTo = []string{"physics"}
	require.Empty(t, firings(rules.NewHistory(), []*schema.HookRule{r}, lost), "a node belongs to no tenant")
}

func TestCooldownIsByRuleAndResource(t *testing.T) {
	all := []*schema.HookRule{rule("r", onEvent(event.InstanceFailed), cooldown(300))}
	h := rules.NewHistory()
	require.Len(t, firings(h, all, instanceEvent(event.InstanceFailed, "train", 0)), 1)
	require.Empty(t, firings(h, all, instanceEvent(event.InstanceFailed, "train", 299)))
	require.Len(t, firings(h, all, instanceEvent(event.InstanceFailed, "other", 299)), 1, "another resource")
	require.Len(t, firings(h, all, instanceEvent(event.InstanceFailed, "train", 300)), 1)
}

// A daemon whose clock is behind that of the one before silences no rule: only firings closer than the cooldown are left out.
func TestCooldownEndsForAnEarlierClock(t *testing.T) {
	for seconds, want := range map[int]int{0: 1, 99: 1, 101: 0} {
		all := []*schema.HookRule{rule("r", onEvent(event.InstanceFailed), cooldown(seconds))}
		h := rules.NewHistory()
		require.Len(t, firings(h, all, instanceEvent(event.InstanceFailed, "train", 500)), 1)
		require.Len(t, firings(h, all, instanceEvent(event.InstanceFailed, "train", 400)), want, "cooldown of %d s", seconds)
	}
}

func TestRepeatedFailuresAreCountedByEventTime(t *testing.T) {
	all := []*schema.HookRule{rule("twice", onFailures(2, 3600))}
	for name, one := range map[string]struct {
		at   []int
		want int
	}{
		"one":                             {[]int{0}, 0},
		"two within the time":             {[]int{0, 3599}, 1},
		"two too far apart":               {[]int{0, 3600}, 0},
		"a failure counts for one firing": {[]int{0, 10, 20}, 1},
		"four are two firings":            {[]int{0, 10, 20, 30}, 2},
	} {
		h, n := rules.NewHistory(), 0
		for _, at := range one.at {
			n += len(firings(h, all, instanceEvent(event.InstanceFailed, "train", at)))
			require.Empty(t, firings(h, all, instanceEvent(event.InstanceRunning, "train", at)), "no failure")
		}
		require.Equal(t, one.want, n, name)
	}
	h := rules.NewHistory()
	require.Empty(t, firings(h, all, instanceEvent(event.InstanceFailed, "train", 0), instanceEvent(event.InstanceFailed, "other", 1)),
		"failures of two resources")
	require.Empty(t, firings(h, nil, instanceEvent(event.InstanceFailed, "new", 2)))
	require.Len(t, firings(h, all, instanceEvent(event.InstanceFailed, "new", 3)), 1, "a failure before the rule counts")
}

func TestNoRuleFiresOnTheEventOfARule(t *testing.T) {
	all := []*schema.HookRule{rule("a", onEvent(event.InstanceFailed)), rule("b", onEvent(event.RuleFired)), rule("c", onFailures(2, 60))}
	require.Len(t, firings(rules.NewHistory(), all, instanceEvent(event.InstanceFailed, "train", 0)), 1)
}

func TestEffectsArePendingUntilTheirOutcome(t *testing.T) {
	r := rule("r", onEvent(event.InstanceFailed), func(r *schema.HookRule) {
		r.Spec.Then = append(r.Spec.Then, schema.HookEffect{Webhook: &schema.HookWebhook{URL: "https://a.example/x"}},
			schema.HookEffect{Action: &schema.HookAction{Operation: "restart"}})
	})
	h := rules.NewHistory()
	out := h.Record([]*schema.HookRule{r}, instanceEvent(event.InstanceFailed, "train", 0))
	all := h.Pending()
	require.Len(t, all, 2)
	require.Equal(t, []int{0, 1}, []int{all[0].Number, all[1].Number})
	done := rules.Outcome(all[0].Firing, 0, "webhook a.example", "", start)
	require.Equal(t, string(event.RuleDone), done.EventType)
	h.Add(done)
	h.Add(done) // announced again after a lost answer
	require.Len(t, h.Pending(), 1)
	refused := rules.Outcome(all[1].Firing, 1, "restart", "no permission", start)
	require.Equal(t, string(event.RuleFailed), refused.EventType)
	h.Add(refused)
	require.Empty(t, h.Pending())
	again := rules.NewHistory() // as a restarted daemon reads it
	for _, e := range append(out, done) {
		again.Add(e)
	}
	require.Len(t, again.Pending(), 1)
	require.Equal(t, 1, again.Pending()[0].Number)
}

// A daemon that reads the log goes on as if it had never stopped: wherever a history is cut, the firings are the same, and have
// the same ids.
func TestSameLogGivesSameFirings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := []*schema.HookRule{
			rule("event", onEvent(event.InstanceFailed), cooldown(rapid.IntRange(0, 100).Draw(t, "cooldown"))),
			rule("absent", onAbsence(event.InstanceRunning, event.InstanceFailed, rapid.IntRange(1, 100).Draw(t, "absent")), cooldown(30)),
			rule("twice", onFailures(rapid.IntRange(2, 4).Draw(t, "count"), rapid.IntRange(1, 200).Draw(t, "within")), cooldown(50)),
			rule("unready", onCondition("Ready", "False", rapid.IntRange(0, 100).Draw(t, "for")), cooldown(10)),
		}
		var events []plan.Event
		at := 0
		for i := range rapid.IntRange(1, 60).Draw(t, "events") {
			at += rapid.IntRange(-5, 60).Draw(t, "gap")
			name := rapid.SampledFrom([]string{"a", "bb"}).Draw(t, "name")
			e := instanceEvent(rapid.SampledFrom([]event.Type{event.InstanceFailed, event.InstanceRunning}).Draw(t, "type"), name, at)
			if ready := rapid.SampledFrom([]string{"", "", "True", "False"}).Draw(t, "ready"); ready != "" {
				e.EventType = string(event.ConditionChanged)
				e.Payload, _ = json.Marshal(event.Condition{OrgID: "physics", ProjectID: "physics.lhc", AppSlug: "slurm", ResourceKind: "Instance",
					ResourceName: "physics.lhc/" + name, Condition: "Ready", Status: ready, Revision: "abc"})
			}
			e.EventID = fmt.Sprintf("%032x", i)
			events = append(events, e)
		}
		whole := rules.NewHistory(all...).Record(all, events...)
		cut := rapid.IntRange(0, len(events)).Draw(t, "cut")
		log := rules.NewHistory(all...).Record(all, events[:cut]...)
		restarted := rules.NewHistory(all...)
		for _, e := range log {
			restarted.Add(e)
		}
		log = append(log, restarted.Record(all, events[cut:]...)...)
		if fmt.Sprint(log) != fmt.Sprint(whole) {
			t.Fatalf("cut at %d:\n%v\nwhole:\n%v", cut, log, whole)
		}
	})
}

func TestCountIsWhatTheRuleWouldHaveDone(t *testing.T) {
	r := rule("twice", onFailures(2, 3600), cooldown(300))
	var log []plan.Event
	for _, at := range []int{0, 60, 120, 400} {
		log = append(log, instanceEvent(event.InstanceFailed, "train", at), instanceEvent(event.InstanceRunning, "train", at))
	}
	n, on := rules.Count(r, rules.NewHistory().Record([]*schema.HookRule{rule("old", onFailures(2, 3600))}, log...))
	require.Equal(t, 2, n)
	require.Equal(t, []rules.Resource{{Kind: schema.KindInstance, Tenant: "physics", ProjectID: "physics.lhc", App: "slurm",
		Name: "physics.lhc/train"}}, on)
}

func TestThresholdMakesOneEventAtItsBeginAndEnd(t *testing.T) {
	above := 90
	r := rule("hot", schema.HookWhen{Threshold: &schema.HookThreshold{Metric: schema.MetricLoad, Above: &above, ForSeconds: 60}})
	all := []*schema.HookRule{r, rule("other", onEvent(event.NodeThresholdExceeded))}
	h, s := rules.NewHistory(), rules.NewSampler()
	var got []string
	sample := func(after int, load float64) {
		m := &nodes.Measured{Load: &load}
		if load < 0 {
			m = nil // no answer
		}
		events := s.Sample(h, all, "n1", "abc", rules.Values(m), start.Add(time.Duration(after)*time.Second))
		for _, e := range h.Record(all, events...) {
			f, _ := rules.Firing(e)
			got = append(got, fmt.Sprintf("%d %s %s", after, e.EventType, f.Rule))
		}
	}
	for at, load := range []float64{91, 91, 91, 90, 91, 91, -1, 91, 91, 91, 91, 91, 91, 91, -1, 92, 90, 91} {
		sample(20*at, load)
	}
	require.Equal(t, []string{
		"200 berth.node.threshold_exceeded ", "200 berth.rule.fired hot", "200 berth.rule.fired other",
		"320 berth.node.threshold_ended "}, got)
	require.Empty(t, s.Sample(h, nil, "n1", "abc", rules.Values(&nodes.Measured{}), start), "no rule, no event")
}

func TestValuesOfANode(t *testing.T) {
	load := 1.5
	require.Equal(t, map[string]float64{schema.MetricLoad: 1.5, schema.MetricMemoryAvailable: 2048, schema.MetricDiskFree: 3,
		schema.MetricClockOffset: 7}, rules.Values(&nodes.Measured{Load: &load, AvailableMiB: 2048, ClockOffset: -7,
		Disks: []nodes.Disk{{FreeGiB: 9}, {FreeGiB: 3}, {FreeGiB: 5}}}))
	require.Empty(t, rules.Values(nil))
	require.Subset(t, schema.NodeMetrics(), []string{schema.MetricLoad, schema.MetricMemoryAvailable, schema.MetricDiskFree,
		schema.MetricClockOffset})
}

func TestChangedRuleShowsWhatItCoversAndHowOftenItWouldHaveFired(t *testing.T) {
	desired := func(all ...*schema.HookRule) *schema.Desired {
		d := &schema.Desired{Platform: &schema.Platform{Others: schema.Others{}, Nodes: map[string]*schema.Node{}},
			Tenants: map[string]*schema.TenantEstate{"physics": {Projects: map[string]*schema.ProjectEstate{"lhc": {
				Instances: map[string]*schema.Instance{}}}}}}
		for i := range 7 {
			one := &schema.Instance{Spec: schema.InstanceSpec{App: "slurm"}}
			one.Key = schema.InstanceKey("physics", "lhc", fmt.Sprintf("i%d", i))
			d.Tenants["physics"].Projects["lhc"].Instances[one.Key.Name] = one
		}
		node := &schema.Node{}
		node.Key = schema.Key{Kind: schema.KindNode, Name: "n1"}
		d.Platform.Nodes["n1"] = node
		for _, r := range all {
			d.Platform.Others["platform/hooks/"+r.Key.Name+".yaml"] = r
		}
		return d
	}
	log := []plan.Event{instanceEvent(event.InstanceFailed, "i1", 0), instanceEvent(event.InstanceFailed, "i1", 10)}
	above := 1
	same := rule("same", onEvent(event.InstanceFailed))
	after := desired(same, rule("twice", onFailures(2, 60)),
		rule("nobody", onEvent(event.InstanceFailed), func(r *schema.HookRule) { r.Spec.Apps = []string{"other"} }),
		rule("off", onCondition("ClockDiffers", "True", 60)),
		rule("hot", schema.HookWhen{Threshold: &schema.HookThreshold{Metric: schema.MetricLoad, Above: &above}}))
	reads := 0
	notes := rules.Preview(desired(same), after, func() ([]plan.Event, error) { reads++; return log, nil })
	var got []string
	for _, n := range notes {
		require.Equal(t, schema.SeverityNote, n.Severity)
		got = append(got, n.Message)
	}
	require.Equal(t, []string{
		"spec.when: covers n1; how often it would have fired is unknown, as metrics are not recorded",
		"spec.when: covers nothing that is declared now; in the last 7 days it would have fired 0 times",
		"spec.when: covers n1; how often it would have fired is unknown: changes of ClockDiffers are recorded only while a rule in force " +
			"names it",
		"spec.when: covers physics.lhc/i0, physics.lhc/i1, physics.lhc/i2, physics.lhc/i3, physics.lhc/i4 and 2 more; " +
			"in the last 7 days it would have fired once, on physics.lhc/i1",
	}, got)
	require.Equal(t, 1, reads)
	require.Empty(t, rules.Preview(after, after, nil), "no rule changed")
	notes = rules.Preview(desired(), desired(same), func() ([]plan.Event, error) { return log, errors.New("damaged") })
	require.Contains(t, notes[0].Message, "would have fired 2 times, on physics.lhc/i1 by the events that can be read here: damaged")
}

func onAbsence(missing, after event.Type, within int) schema.HookWhen {
	return schema.HookWhen{Absence: &schema.HookAbsence{Event: string(missing), After: string(after), WithinSeconds: within}}
}

// A rule fires once for each wait that ends without the event, with the time when it ended, whether a clock or the next event of
// the resource shows that.
func TestAbsenceOfAnEventFiresOnce(t *testing.T) {
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	stuck := []*schema.HookRule{rule("stuck", onAbsence(event.InstanceRunning, event.InstanceRequested, 60))}
	requested := func(name string, after int) plan.Event { return instanceEvent(event.InstanceRequested, name, after) }
	running := func(name string, after int) plan.Event { return instanceEvent(event.InstanceRunning, name, after) }

	h := rules.NewHistory(stuck...)
	require.Empty(t, firings(h, stuck, requested("a", 0), requested("bb", 0), running("bb", 59), requested("ccc", 0)))
	require.Empty(t, firings(h, stuck, instanceEvent(event.InstanceDeleted, "ccc", 5)), "nothing is expected of what is gone")
	require.Empty(t, h.Due(stuck, at(59)))
	out := h.Due(stuck, at(100))
	require.Len(t, out, 1)
	f, _ := rules.Firing(out[0])
	require.Equal(t, "physics.lhc/a", f.ResourceName)
	require.Equal(t, string(event.InstanceRequested), f.TriggerType)
	require.Equal(t, at(60), out[0].OccurredAt)
	require.Empty(t, h.Due(stuck, at(1000)))

	late := rules.NewHistory(stuck...) // no clock looked before the event came
	require.Empty(t, firings(late, stuck, requested("a", 0)))
	again := late.Record(stuck, running("a", 61))
	require.Equal(t, out[0], again[0])
	require.Empty(t, late.Due(stuck, at(1000)))

	silent := []*schema.HookRule{rule("silent", onAbsence(event.InstanceRunning, "", 60))}
	h = rules.NewHistory(silent...)
	require.Empty(t, firings(h, silent, running("a", 0), running("a", 50), running("a", 100)))
	require.Len(t, h.Due(silent, at(160)), 1)
	require.False(t, rules.NewHistory(silent...).Keeps(stuck))
	require.True(t, h.Keeps(silent))
	n, _ := rules.Count(stuck[0], []plan.Event{requested("a", 0), running("bb", 100)})
	require.Equal(t, 1, n)
}

func onCondition(typ, status string, seconds int) schema.HookWhen {
	return schema.HookWhen{Condition: &schema.HookCondition{Type: typ, Status: status, ForSeconds: seconds}}
}

// Two changes of a condition at one time, as by a clock that was set back, are two events.
func TestChangesAtOneTimeHaveTheirOwnIDs(t *testing.T) {
	all := []*schema.HookRule{rule("unready", onCondition("Ready", "False", 60))}
	h := rules.NewHistory(all...)
	ids := map[string]bool{}
	for _, status := range []plan.ConditionStatus{plan.ConditionFalse, plan.ConditionTrue, plan.ConditionFalse} {
		is := []rules.Conditions{{Key: schema.InstanceKey("physics", "lhc", "train"),
			List: []plan.Condition{{Type: plan.ConditionReady, Status: status}}}}
		for _, e := range h.Record(all, h.Changes(all, is, start)...) {
			ids[e.EventID] = true
		}
	}
	require.Len(t, ids, 3)
}

// A rule on a condition fires once for each time that the condition has its status for long enough. Only changes of conditions that a
// rule names are events.
func TestConditionFiresOnceItHasLasted(t *testing.T) {
	all := []*schema.HookRule{rule("unready", onCondition("Ready", "False", 60), cooldown(0)),
		rule("small", onCondition("CapacityDiffers", "True", 60)),
		rule("others", onCondition("Ready", "True", 0), func(r *schema.HookRule) { r.Spec.AppliesTo = []string{"chem"} })}
	h := rules.NewHistory(all...)
	var log []plan.Event
	var fired []string
	note := func(after int, events []plan.Event) {
		log = append(log, events...)
		for _, e := range events {
			if f, ok := rules.Firing(e); ok {
				fired = append(fired, fmt.Sprintf("%d %s %s %s %s", after, f.Rule, f.ResourceKind, f.ResourceName, e.OccurredAt.Sub(start)))
			}
		}
	}
	of := map[schema.Key]rules.Conditions{}
	is := func(after int, key schema.Key, conditions ...plan.Condition) {
		now := start.Add(time.Duration(after) * time.Second)
		of[key] = rules.Conditions{Key: key, App: "slurm", List: conditions, Revision: "abc", CorrelationID: "c1"}
		note(after, h.Record(all, h.Changes(all, slices.Collect(maps.Values(of)), now)...))
		note(after, h.Due(all, now))
	}
	ready := func(status plan.ConditionStatus) plan.Condition {
		return plan.Condition{Type: plan.ConditionReady, Status: status, Message: "on n1"}
	}
	train, node := schema.InstanceKey("physics", "lhc", "train"), schema.Key{Kind: schema.KindNode, Name: "n1"}
	is(0, train, ready(plan.ConditionTrue))
	is(0, node, ready(plan.ConditionFalse))
	require.Empty(t, log, "nothing that a rule names")
	for _, at := range []int{0, 30, 59} {
		is(at, train, ready(plan.ConditionFalse))
	}
	require.Len(t, log, 1)
	require.NotContains(t, string(log[0].Payload), "n1")
	is(60, train, ready(plan.ConditionUnknown))
	is(100, train, ready(plan.ConditionFalse))
	is(159, train, ready(plan.ConditionFalse))
	is(170, train, ready(plan.ConditionFalse))
	is(999, train, ready(plan.ConditionFalse))
	is(1000, train)
	is(2000, node, plan.Condition{Type: plan.ConditionCapacityDiffers, Status: plan.ConditionTrue})
	is(2060, node, plan.Condition{Type: plan.ConditionCapacityDiffers, Status: plan.ConditionTrue})
	require.Equal(t, []string{"60 unready Instance physics.lhc/train 1m0s", "170 unready Instance physics.lhc/train 2m40s",
		"2060 small Node n1 34m20s"}, fired)
	n, _ := rules.Count(all[0], log)
	require.Equal(t, 2, n)

	h.Add(instanceEvent(event.InstanceDeleted, "train", 3000))
	n = len(log)
	is(3001, train, ready(plan.ConditionTrue))
	require.Len(t, log, n, "the new instance has no wait")
}

// A wait ends when no rule names the condition, when the resource is gone, and while the unit is paused or stopped.
func TestWaitEndsWhereNothingIsCompared(t *testing.T) {
	all := []*schema.HookRule{rule("unready", onCondition("Ready", "False", 60), cooldown(0))}
	train := schema.InstanceKey("physics", "lhc", "train")
	unready := []plan.Condition{{Type: plan.ConditionReady, Status: plan.ConditionFalse, Reason: plan.ReasonFailed}}
	for name, c := range map[string]struct {
		rules []*schema.HookRule
		of    []rules.Conditions
	}{
		"rule removed":     {nil, nil},
		"resource removed": {all, nil},
		"paused": {all, []rules.Conditions{{Key: train, App: "slurm", List: []plan.Condition{
			{Type: plan.ConditionReady, Status: plan.ConditionFalse, Reason: plan.ReasonPaused}}}}},
		"stopped": {all, []rules.Conditions{{Key: train, App: "slurm", List: []plan.Condition{
			{Type: plan.ConditionReady, Status: plan.ConditionFalse, Reason: plan.ReasonOfPhase(plan.PhaseStopped)}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			h := rules.NewHistory(all...)
			at := func(after int) time.Time { return start.Add(time.Duration(after) * time.Second) }
			is := []rules.Conditions{{Key: train, App: "slurm", List: unready, Revision: "abc", CorrelationID: "c1"}}
			require.Len(t, h.Record(all, h.Changes(all, is, at(0))...), 1)
			ended := h.Changes(c.rules, c.of, at(30))
			require.Len(t, ended, 1)
			h.Record(c.rules, ended...)
			require.Empty(t, h.Changes(c.rules, c.of, at(31)), "one event")
			require.Empty(t, h.Due(all, at(99)))
			require.Len(t, h.Record(all, h.Changes(all, is, at(100))...), 1)
			require.Empty(t, h.Due(all, at(159)), "the time begins again")
			require.Len(t, h.Due(all, at(160)), 1)
		})
	}
}

// A status that lasts longer than the cooldown of an earlier firing fires at its end.
func TestCooldownDelaysALastingCondition(t *testing.T) {
	all := []*schema.HookRule{rule("unready", onCondition("Ready", "False", 60), cooldown(300))}
	h := rules.NewHistory(all...)
	var fired []time.Duration
	is := func(after int, status plan.ConditionStatus) {
		now := start.Add(time.Duration(after) * time.Second)
		of := rules.Conditions{Key: schema.InstanceKey("physics", "lhc", "train"), App: "slurm",
			List: []plan.Condition{{Type: plan.ConditionReady, Status: status}}}
		for _, e := range append(h.Record(all, h.Changes(all, []rules.Conditions{of}, now)...), h.Due(all, now)...) {
			if _, ok := rules.Firing(e); ok {
				fired = append(fired, e.OccurredAt.Sub(start))
			}
		}
	}
	is(0, plan.ConditionFalse)
	is(60, plan.ConditionFalse)
	is(100, plan.ConditionTrue)
	is(200, plan.ConditionFalse)
	is(359, plan.ConditionFalse)
	require.Equal(t, []time.Duration{time.Minute}, fired)
	is(365, plan.ConditionFalse)
	is(9999, plan.ConditionFalse)
	require.Equal(t, []time.Duration{time.Minute, 6 * time.Minute}, fired)
}
