package loop

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/reconciler"
	"berth/reconciler/nodes"
	"berth/reconciler/plan"
	"berth/runtimes"
)

// Metrics are the metrics of the loop. Their names begin with berth_, except those of the four counters of
// requirement E11. No label has the name of a unit, tenant or node.
type Metrics struct {
	reconciles   *prometheus.CounterVec
	durations    *prometheus.HistogramVec
	runtimeCalls *prometheus.CounterVec
	statusWrites *prometheus.CounterVec
	frozen       prometheus.Gauge
	chainBroken  prometheus.Gauge

	rollbacksExpired prometheus.Gauge

	schedulingAttempts *prometheus.CounterVec
	actions            *prometheus.CounterVec
	retries            *prometheus.CounterVec
	unhealthyNodes     *prometheus.CounterVec
}

// NewMetrics makes the metrics of a loop, and registers them with reg unless it is
// nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		reconciles: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_reconciles_total", Help: "Reconciliations, by task and result."}, []string{"task", "result"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "berth_reconcile_duration_seconds", Help: "Duration of a reconciliation, by task.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 9)}, []string{"task"}),
		runtimeCalls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_runtime_calls_total", Help: "Calls of a runtime, by backend, operation and result."},
			[]string{"backend", "operation", "result"}),
		statusWrites: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_status_commits_total", Help: "Attempts to push a commit of berth/status, by result."}, []string{"result"}),
		frozen: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_sync_frozen", Help: "1 while synchronization of the estate is frozen."}),
		chainBroken: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_audit_chain_broken",
			Help: "1 if the end of the audit chain was broken when it was last verified: at the start, and when another writer moved " +
				"berth/status."}),
		rollbacksExpired: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_queue_rollbacks_expired",
			Help: "Queue maps in force whose rollback has expired, and whose mode stays until somebody renews or removes the rollback."}),
		schedulingAttempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scheduling_attempts_total", Help: "Searches for the nodes of a unit's members in a placement that came into force, by result: " +
				"placed, or unschedulable if a member found no node."}, []string{"result"}),
		actions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "reconciliation_actions_total", Help: "Actions of plans that were applied to units, by verb and result: done, failed, " +
				"uncertain, or waiting (such as for jobs)."}, []string{"action", "result"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "retry_total", Help: "Retries of failed units, by kind: automatic (begun after the delay), or requested by a command or an " +
				"operation."}, []string{"kind"}),
		unhealthyNodes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "node_unhealthy_total", Help: "Transitions of nodes to a state other than ready, by that state."}, []string{"state"}),
	}
	if reg != nil {
		reg.MustRegister(m.reconciles, m.durations, m.runtimeCalls, m.statusWrites, m.frozen, m.chainBroken, m.rollbacksExpired,
			m.schedulingAttempts, m.actions, m.retries, m.unhealthyNodes)
	}
	return m
}

// placed counts the attempts of a placement that comes into force.
func (m *Metrics) placed(p plan.Placement) {
	for _, a := range p.Attempts() {
		result := "placed"
		if !a.Placed {
			result = "unschedulable"
		}
		m.schedulingAttempts.WithLabelValues(result).Inc()
	}
}

// acted counts the actions of a plan that were applied.
func (m *Metrics) acted(outcomes []plan.Outcome) {
	for _, o := range outcomes {
		if o.State != plan.Skipped {
			m.actions.WithLabelValues(string(o.Verb), string(o.State)).Inc()
		}
	}
}

// retriedAutomatically counts a retry that the loop begins.
func (m *Metrics) retriedAutomatically() { m.retries.WithLabelValues("automatic").Inc() }

// retriedOnRequest counts the retries of units that a person or a service account asked for.
func (m *Metrics) retriedOnRequest(units int) {
	m.retries.WithLabelValues("requested").Add(float64(units))
}

// nodeChanged counts the transition of a node to a state other than ready.
func (m *Metrics) nodeChanged(to nodes.State) {
	if to != nodes.Ready {
		m.unhealthyNodes.WithLabelValues(string(to)).Inc()
	}
}

func (m *Metrics) reconciled(t reconciler.Task, d time.Duration, err error) {
	m.reconciles.WithLabelValues(string(t), result(err == nil)).Inc()
	m.durations.WithLabelValues(string(t)).Observe(d.Seconds())
}

func (m *Metrics) called(backend, operation string, ok bool) {
	m.runtimeCalls.WithLabelValues(backend, operation, result(ok)).Inc()
}

func (m *Metrics) pushed(err error) {
	m.statusWrites.WithLabelValues(result(err == nil)).Inc()
}

func (m *Metrics) chain(holds bool) {
	if holds {
		m.chainBroken.Set(0)
	} else {
		m.chainBroken.Set(1)
	}
}

func result(ok bool) string {
	if ok {
		return "ok"
	}
	return "error"
}

// counted is a runtime whose calls are counted.
type counted struct {
	runtimes.Runtime
	metrics *Metrics
	backend string
}

func (c counted) Apply(ctx context.Context, ch runtimes.Change) error {
	err := c.Runtime.Apply(ctx, ch)
	c.metrics.called(c.backend, string(ch.Action.Verb), err == nil)
	return err
}
