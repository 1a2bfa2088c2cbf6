//go:build long

package loop_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"berth/reconciler/decide"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/loop"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/event"
)

const (
	mapFile  = "platform/queues/physics.yaml"
	mapPage  = "platform/queues/README.md"
	contract = "boundary/v1+0123456789ab"
)

var mapKey = schema.Key{Kind: schema.KindQueueMap, Name: "physics"}

// queueMapText returns a map for the tenant physics, with a rollback unless until is "".
func queueMapText(mode, until string) string {
	text := "apiVersion: berth/v1\nkind: QueueMap\nmetadata: {name: physics}\nspec:\n  app: batch\n  applies_to: [physics]\n  queues: " +
		"[{queue: short, partition: main}]\n" +
		fmt.Sprintf("  mode: %s\n  contract: %s\n  runbook: %s\n", mode, contract, mapPage)
	if until != "" {
		text += fmt.Sprintf("  rollback: {owner: ops, reason: incident 7, expires_at: %q, follow_up: task 12, runbook: %s}\n", until,
			mapPage)
	}
	return text
}

// withQueueModes has the daemon check the modes of queue maps, at the day that day returns.
func withQueueModes(day *atomic.Int64, m *loop.Metrics) tune {
	begin, started := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), time.Now()
	return func(o *loop.Options) {
		o.Now = func() time.Time { return begin.AddDate(0, 0, int(day.Load())).Add(time.Since(started)) }
		o.Decide.Rules = []decide.Rule{schema.QueueModes(contract)}
		o.Metrics = m
	}
}

// queueEvents returns the events of queue maps, oldest first, as "type previous mode > mode".
func (w *world) queueEvents() (all []string) {
	for _, e := range w.events() {
		typ, ok := strings.CutPrefix(e.EventType, "berth.queuemap.")
		if !ok {
			continue
		}
		var p event.QueueMap
		require.NoError(w.t, json.Unmarshal(e.Payload, &p))
		all = append(all, fmt.Sprintf("%s %s>%s %s", typ, p.PreviousMode, p.Status, p.Rollback.ExpiresAt))
	}
	return all
}

func (w *world) rollbackCondition() plan.Condition {
	if s := w.tree().Things[mapKey]; s != nil {
		for _, c := range s.Conditions {
			if c.Type == "RollbackExpired" {
				return c
			}
		}
	}
	return plan.Condition{}
}

// The last day of a rollback ends while nobody commits: the mode stays, and a metric, an event and a condition
// say so, once, also when daemons restart and answers are lost. Renewed, all three say that (requirement C5).
func TestLongExpiredRollbackIsReportedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var day atomic.Int64
	metrics := func() (*loop.Metrics, func() float64) {
		reg := prometheus.NewRegistry()
		m := loop.NewMetrics(reg)
		return m, func() float64 {
			families, err := reg.Gather()
			require.NoError(t, err)
			for _, f := range families {
				if f.GetName() == "berth_queue_rollbacks_expired" {
					return f.Metric[0].GetGauge().GetValue()
				}
			}
			return -1
		}
	}
	m, expired := metrics()
	var logged atomic.Int64
	hook := func(o *loop.Options) {
		o.Hooks.QueueMap = func(e plan.Event) {
			if e.EventType == string(event.QueueRollbackExpired) {
				logged.Add(1)
			}
		}
	}
	d := w.start(withQueueModes(&day, m), hook)
	w.put(map[string]string{mapPage: "# How to go back\n", mapFile: queueMapText(schema.ModeRealPolicy, "")})
	w.eventually("real-policy in force", func() bool { return w.rollbackCondition().Reason == "NoRollback" })
	back := w.put(map[string]string{mapFile: queueMapText(schema.ModePassthrough, "2026-03-02")})
	w.eventually("rollback in force", func() bool { return w.rollbackCondition().Reason == "Active" })
	require.Equal(t, plan.ConditionFalse, w.rollbackCondition().Status)
	require.Zero(t, expired())
	began := []string{"mode_changed >real-policy ", "mode_changed real-policy>passthrough 2026-03-02",
		"rollback_began >passthrough 2026-03-02"}
	w.eventually("events", func() bool { return len(w.queueEvents()) == 3 })
	require.Equal(t, began, w.queueEvents())

	day.Store(1)
	d.does(theEstate) // on the last day
	d.does(theEstate)
	d.written()
	require.Equal(t, plan.ConditionFalse, w.rollbackCondition().Status)
	w.git.SetFaults(gittest.Faults{Down: true})
	day.Store(2)
	w.eventually("alarm while the remote is down", func() bool { return expired() == 1 })
	w.git.SetFaults(gittest.Faults{DropReplies: 2})
	w.eventually("expired", func() bool { return w.rollbackCondition().Status == "True" })
	require.Equal(t, plan.ReasonExpired, w.rollbackCondition().Reason)
	require.Contains(t, w.rollbackCondition().Message, "expired on 2026-03-02: ops renews or removes it (task 12)")
	require.Equal(t, "passthrough", w.tree().Things[mapKey].Phase, "the mode stays")
	require.Equal(t, back, w.tree().Things[mapKey].Revision)
	require.EqualValues(t, 1, expired())
	isTold := func() (n int) {
		for _, e := range w.queueEvents() {
			if e == "rollback_expired >passthrough 2026-03-02" {
				n++
			}
		}
		return n
	}
	w.eventually("event", func() bool { return isTold() == 1 })

	for range 2 {
		require.NoError(t, d.stop())
		m, expired = metrics()
		d = w.start(withQueueModes(&day, m), hook)
		w.eventually("leads", func() bool { return expired() == 1 })
	}
	require.EqualValues(t, 1, logged.Load(), "logged at the expiry, and not at each reconciliation or start")
	w.put(map[string]string{mapFile: queueMapText(schema.ModePassthrough, "2026-03-09")})
	w.eventually("renewed", func() bool { return w.rollbackCondition().Reason == "Active" })
	require.Zero(t, expired())
	w.put(map[string]string{mapFile: queueMapText(schema.ModeRealPolicy, "")})
	w.eventually("ended", func() bool { return w.rollbackCondition().Reason == "NoRollback" })
	w.put(nil, mapFile)
	w.eventually("deleted", func() bool { return w.tree().Things[mapKey] == nil })
	w.eventually("events", func() bool { return len(w.queueEvents()) == 8 })
	all := w.queueEvents()
	require.Equal(t, []string{
		"rollback_expired >passthrough 2026-03-02", "rollback_began >passthrough 2026-03-09",
		"rollback_ended >real-policy 2026-03-09", "mode_changed passthrough>real-policy ", "mode_changed real-policy>deleted ",
	}, all[3:])
	w.noEventTwice()
}
