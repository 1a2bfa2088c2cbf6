package loop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/loop"
	"berth/reconciler/nodes"
	"berth/reconciler/plan"
	"berth/reconciler/rules"
	"berth/runtimes"
	"berth/schema"
	"berth/schema/audit"
	"berth/schema/event"
)

// hookRule returns a file with a rule.
func hookRule(name, spec string) map[string]string {
	return map[string]string{"platform/hooks/" + name + ".yaml": "apiVersion: berth/v1\nkind: HookRule\nmetadata: {name: " + name +
		"}\nspec: " + spec + "\n"}
}

// firings returns the firings on berth/status, as "rule resource trigger".
func (w *world) firings() (out []string) {
	for _, e := range w.events() {
		if f, ok := rules.Firing(e); ok {
			out = append(out, f.Rule+" "+f.ResourceName+" "+f.TriggerType)
		}
	}
	return out
}

// A rule in force fires on events of units and nodes, once each, also across a restart. A suspended one does not fire.
func TestRuleInForceFires(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alert := "then: [{alert: {severity: warning, summary: look}}]"
	w.put(hookRule("up", "{when: {event: apps.instance.running}, "+alert+", cooldown_seconds: 0}"))
	off := hookRule("off", "{when: {event: apps.instance.running}, "+alert+"}")
	off["platform/hooks/off.yaml"] = "suspend: true\n" + off["platform/hooks/off.yaml"]
	w.put(off)
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})
	d := w.start(w.observed)
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	w.eventually("fired", func() bool { return len(w.firings()) > 0 })
	w.eventually("ready", w.nodeIs("gpu-1", nodes.Ready))
	require.NoError(t, d.stop())
	require.Contains(t, w.firings(), "up physics.lab/train "+string(event.InstanceRunning))
	w.start(w.observed)
	second, text := instance("test", 1)
	w.put(map[string]string{second: text})
	w.eventually("the second one fires", func() bool { return len(w.firings()) >= 2 })
	require.Equal(t, []string{"up physics.lab/train apps.instance.running", "up physics.lab/test apps.instance.running"}, w.firings())
	w.noEventTwice()
}

// outcomes returns what came of the effects of firings, as "effect status reason".
func (w *world) outcomes() (out []string) {
	for _, e := range w.events() {
		var p event.Rule
		if e.EventType == string(event.RuleDone) || e.EventType == string(event.RuleFailed) {
			require.NoError(w.t, json.Unmarshal(e.Payload, &p))
			out = append(out, p.Effect+" "+p.Status+" "+p.FailureReason)
		}
	}
	return out
}

// sent is a receiver of webhooks that answers with errors first.
type sent struct {
	mu     sync.Mutex
	errs   []error
	all    []loop.Webhook
	forbid bool
}

func (s *sent) send(_ context.Context, w loop.Webhook) (again bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, w)
	if len(s.errs) > 0 {
		err, s.errs = s.errs[0], s.errs[1:]
	}
	return !s.forbid, err
}

func (s *sent) hook(o *loop.Options) { o.Hooks.Webhook = s.send }

const upWebhook = "{when: {event: apps.instance.running}, then: [{webhook: {url: \"https://pager.example/x\", secret: key}}]}"

// A webhook is sent after its firing is on berth/status, again with the same id until it is taken, and not again after a restart.
func TestWebhookOfARuleIsSentOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put(hookRule("up", upWebhook))
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})
	s := &sent{errs: []error{errors.New("503")}}
	var durable []bool
	d := w.start(func(o *loop.Options) {
		o.Hooks.Webhook = func(ctx context.Context, h loop.Webhook) (bool, error) {
			durable = append(durable, len(w.firings()) == 1)
			return s.send(ctx, h)
		}
	})
	w.eventually("an outcome", func() bool { return len(w.outcomes()) > 0 })
	require.NoError(t, d.stop())
	require.Equal(t, []bool{true, true}, durable)
	require.Equal(t, []string{"webhook pager.example done "}, w.outcomes())
	require.Len(t, s.all, 2)
	require.Equal(t, s.all[0], s.all[1])
	require.Equal(t, "key", s.all[0].Secret)
	var body plan.Event
	require.NoError(t, json.Unmarshal(s.all[0].Body, &body))
	f, ok := rules.Firing(body)
	require.True(t, ok)
	require.Equal(t, body.EventID+"-0", s.all[0].ID)
	require.Equal(t, "physics.lab/train", f.ResourceName)
	d = w.start(s.hook)
	d.ready()
	commit := w.put(map[string]string{"README.md": "x"})
	w.eventually("a commit later", func() bool { return w.revision().Commit == commit })
	require.Len(t, s.all, 2)
}

// A webhook that is due when the daemon is killed is sent by the next one; a refusal is recorded with its reason.
func TestDueWebhookIsSentByTheNextDaemon(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put(hookRule("up", upWebhook))
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})
	hanging := func(o *loop.Options) {
		o.Hooks.Webhook = func(ctx context.Context, _ loop.Webhook) (bool, error) {
			<-ctx.Done()
			return true, ctx.Err()
		}
	}
	d := w.start(hanging)
	w.eventually("fired", func() bool { return len(w.firings()) == 1 })
	require.NoError(t, d.stop())
	require.Empty(t, w.outcomes())
	s := &sent{errs: []error{errors.New("404 Not Found")}, forbid: true}
	w.start(s.hook)
	w.eventually("refused", func() bool { return len(w.outcomes()) > 0 })
	require.Equal(t, []string{"webhook pager.example failed 404 Not Found"}, w.outcomes())
	require.Len(t, s.all, 1)
}

func TestWebhookWithoutConfigurationFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put(hookRule("up", upWebhook))
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})
	w.start()
	w.eventually("refused", func() bool { return len(w.outcomes()) > 0 })
	require.Equal(t, []string{"webhook pager.example failed no webhook is sent: add its host to rules.hosts in berth.yaml"},
		w.outcomes())
}

// load sets what the hosts report as their load.
func (w *world) load(node string, load *atomic.Int64) {
	w.world.SetFacts(node, func(f *runtimes.HostFacts) { f.Load = &runtimes.LoadFacts{One: float64(load.Load())} })
}

func hotRule(above int, operation string) string {
	return fmt.Sprintf("{when: {threshold: {metric: node_load, above: %d}}, then: [{action: {operation: %s}}]}", above, operation)
}

// The action of a rule about a node is done once for each member on it, under the name of the rule.
func TestActionOfARuleIsDoneOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.start(w.observed)
	w.trains(1)
	var load atomic.Int64
	w.load(w.status("train").Members[1].Node, &load)
	w.put(hookRule("hot", hotRule(10, "restart")))
	load.Store(11)
	w.eventually("an outcome", func() bool { return len(w.outcomes()) > 0 })
	require.Equal(t, []string{"restart done "}, w.outcomes())
	w.eventually("restarted", func() bool { return w.world.Calls("restart") == 1 })
	require.NoError(t, d.stop())
	o := w.status("train").Operations[0]
	require.Equal(t, "hook/hot", o.RequestedBy)
	require.Equal(t, "worker-0", o.Spec.Member)
	require.Equal(t, plan.OperationDone, o.Phase)
	i := slices.IndexFunc(w.audited(), func(r audit.Record) bool { return r.Action == "operation.restart" })
	require.Equal(t, "hook/hot", w.audited()[i].Actor)
	d = w.start(w.observed)
	d.ready()
	commit := w.put(map[string]string{"README.md": "x"})
	w.eventually("a commit later", func() bool { return w.revision().Commit == commit })
	require.Equal(t, 1, w.world.Calls("restart"))
	require.Len(t, w.firings(), 1)
}

// A rule that holds a unit keeps it as it is, also across a restart and a deletion of its document, until a person releases it. The
// same firing does not hold it again.
func TestRuleHoldsAUnitUntilItsRelease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put(hookRule("stop", "{when: {event: apps.instance.running}, then: [{action: {operation: hold}}]}"))
	d := w.start(w.observed)
	w.trains(1)
	w.eventually("an outcome", func() bool { return len(w.outcomes()) > 0 })
	require.Equal(t, []string{"hold done "}, w.outcomes())
	isHeld := func() bool {
		c := w.status("train").Condition(plan.ConditionOnHold)
		return c.Is(plan.ConditionTrue) && strings.Contains(c.Message, "(rule stop); the operation release ends that")
	}
	w.eventually("held", isHeld)
	waits := func() bool {
		c := w.status("train").Condition(plan.ConditionStalled)
		return c.Is(plan.ConditionTrue) && c.Reason == plan.ReasonPaused && strings.Contains(c.Message, "the operation hold ")
	}
	path, text := instance("train", 2)
	w.put(map[string]string{path: text})
	w.eventually("the change is seen", func() bool { return waits() || w.running("train", 2)() })
	require.True(t, waits(), "nothing changes")
	require.NoError(t, d.stop())
	d = w.start(w.observed)
	w.put(nil, path)
	w.eventually("the deletion waits", func() bool { return w.status("train").Phase == plan.PhaseDeleting && waits() })
	w.put(map[string]string{path: text})
	w.eventually("declared again", func() bool { return w.status("train").Phase == plan.PhaseRequested && isHeld() && waits() })
	require.Len(t, w.status("train").Observed.Unit.Members, 2, "nothing changed")

	_, err := d.RequestOperation(t.Context(), plan.OperationRequest{Unit: trainKey, ID: "go on", RequestedBy: "ada", CorrelationID: "api-1",
		Spec: schema.MemberOperationSpec{Member: "controller-0", Operation: schema.OpRelease, Reason: "it was looked at"}})
	require.NoError(t, err)
	w.eventually("train grows", w.running("train", 2))
	require.Nil(t, w.status("train").Condition(plan.ConditionOnHold))
	require.NoError(t, d.stop())
	d = w.start(w.observed)
	d.ready()
	commit := w.put(map[string]string{"README.md": "x"})
	w.eventually("a commit later", func() bool { return w.revision().Commit == commit })
	require.False(t, isHeld())
	require.Len(t, w.firings(), 1)
	var began, ended int
	for _, e := range w.events() {
		if strings.Contains(string(e.Payload), `"operation":"hold"`) {
			require.Contains(t, string(e.Payload), `"requested_by":"hook/stop"`)
			switch event.Type(e.EventType) {
			case event.OperationRequested:
				began++
			case event.OperationDone:
				ended++
			}
		}
	}
	require.Equal(t, []int{1, 1}, []int{began, ended})
	w.noEventTwice()
}

// A request that is repeated, as by the next daemon after a crash, is audited once: the record is in the commit of its operation.
func TestRepeatedRequestOfARuleIsAuditedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.start()
	w.trains(1)
	req := plan.OperationRequest{Unit: trainKey, ID: "firing-hold", RequestedBy: "hook/stop", CorrelationID: "api-1",
		Spec: schema.MemberOperationSpec{Operation: schema.OpHold, Reason: "rule stop"}}
	record := audit.Record{Author: audit.Author{Actor: "hook/stop"}, Action: "operation.hold", Outcome: audit.Outcome{Verdict: audit.Allowed}}
	for range 2 {
		_, err := d.RequestAudited(t.Context(), req, record)
		require.NoError(t, err)
		commit := w.put(map[string]string{"README.md": w.git.Tip("main")})
		w.eventually("a commit later", func() bool { return w.revision().Commit == commit })
	}
	all := slices.DeleteFunc(w.audited(), func(r audit.Record) bool { return r.Action != record.Action })
	require.Len(t, all, 1)
}

// A rule acts with the permissions that the user who brought it has when it fires.
func TestActionOfARuleNeedsThePermissionsOfItsAuthor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root := newSigner(t, w)
	w.start(governed(root), w.observed)
	w.eventually("adopted", func() bool { return len(w.audited()) == 1 })
	const glass = "x\n\nBreak-Glass: nobody else is there"
	path, text := instance("train", 1)
	const roles = "tenants/physics/roles.yaml"
	member := roleBinding("    - {login: root, role: tenant_admin, signing_keys: [\"" + root.publicKey + "\"]}\n")
	root.push(glass, map[string]string{path: text, roles: member})
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	var load atomic.Int64
	w.load(w.status("train").Members[1].Node, &load)
	root.push("rules", hookRule("hot", hotRule(10, "restart")))
	root.push("rules", hookRule("hotter", hotRule(20, "drain")))
	w.eventually("in force", func() bool { return w.revision().Commit == w.git.Tip("main") })
	load.Store(11)
	w.eventually("an outcome", func() bool { return len(w.outcomes()) == 1 })
	require.Equal(t, []string{"restart done "}, w.outcomes())
	root.push(glass, map[string]string{roles: ""})
	w.eventually("the role is gone", func() bool { return w.revision().Commit == w.git.Tip("main") && len(w.heldReasons()) == 0 })
	load.Store(21)
	w.eventually("an outcome", func() bool { return len(w.outcomes()) == 2 })
	require.Contains(t, w.outcomes()[1], "drain failed drain on Instance physics.lab/train needs apps.instance.member.operate, and root, "+
		"who brought the rule, lacks it")
	require.Len(t, w.status("train").Operations, 1)
	w.eventually("the refusal is audited", func() bool {
		return slices.ContainsFunc(w.audited(), func(r audit.Record) bool {
			return r.Action == "operation.drain" && r.Actor == "hook/hotter" && r.Verdict == audit.Denied
		})
	})
}

// A rule on a condition fires once for a status that has lasted, also by a daemon that comes later.
func TestRuleFiresOnAConditionThatLasts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put(hookRule("drained", "{when: {condition: {type: Degraded, status: \"True\", for_seconds: 1}}, "+
		"then: [{alert: {severity: info, summary: x}}], cooldown_seconds: 0}"))
	d := w.start(w.observed)
	w.trains(1)
	changes := func() (out []string) {
		for _, e := range w.events() {
			var p event.Condition
			if e.EventType == string(event.ConditionChanged) {
				require.NoError(t, json.Unmarshal(e.Payload, &p))
				out = append(out, p.ResourceName+" "+p.Condition+" "+p.Status)
			}
		}
		return out
	}
	require.NoError(t, w.world.SetDrained(trainKey, "worker-0", "a fan is loud"))
	w.eventually("a change", func() bool { return len(changes()) == 1 })
	require.NoError(t, d.stop())
	w.start(w.observed)
	w.eventually("fired", func() bool { return len(w.firings()) == 1 })
	require.NoError(t, w.world.SetDrained(trainKey, "worker-0", ""))
	w.eventually("another change", func() bool { return len(changes()) == 2 })
	require.Equal(t, []string{"physics.lab/train Degraded True", "physics.lab/train Degraded "}, changes())
	require.Equal(t, []string{"drained physics.lab/train berth.condition.changed"}, w.firings())
	w.noEventTwice()
}

// A rule on an event that is missing fires without an event at that time.
func TestAbsenceFiresByTheClock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put(hookRule("lone", "{when: {absence: {event: berth.instance.suspended, after: apps.instance.running, within_seconds: 1}}, "+
		"then: [{alert: {severity: info, summary: x}}]}"))
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})
	w.start(w.observed)
	w.eventually("fired", func() bool { return len(w.firings()) == 1 })
	require.Equal(t, []string{"lone physics.lab/train apps.instance.running"}, w.firings())
}
