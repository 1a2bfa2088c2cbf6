package loop

import (
	"berth/reconciler"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are what the loop counts. Names are prefixed berth_.
type Metrics struct {
	reconciles   *prometheus.CounterVec
	durations    *prometheus.HistogramVec
	runtimeCalls *prometheus.CounterVec
	statusWrites *prometheus.CounterVec
	frozen       prometheus.Gauge
	chainBroken  prometheus.Gauge
}

// NewMetrics makes the loop's metrics and registers them with reg, if not nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		reconciles: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_reconciles_total", Help: "Items of the queue looked at, by task and result."}, []string{"task", "result"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "berth_reconcile_duration_seconds", Help: "How long one look took.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 9)}, []string{"task"}),
		runtimeCalls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_runtime_calls_total", Help: "Calls of a runtime, by backend, operation and result."}, []string{"backend", "operation", "result"}),
		statusWrites: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_status_commits_total", Help: "Attempts to write the status branch, by result."}, []string{"result"}),
		frozen: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_sync_frozen", Help: "1 while the sync of the estate stands still."}),
		chainBroken: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_audit_chain_broken", Help: "1 while the end of the audit chain did not hold when it was last looked at: at the start, and when somebody else moved berth/status."}),
	}
	if reg != nil {
		reg.MustRegister(m.reconciles, m.durations, m.runtimeCalls, m.statusWrites, m.frozen, m.chainBroken)
	}
	return m
}

func (m *Metrics) reconciled(t reconciler.Task, d time.Duration, err error) {
	m.reconciles.WithLabelValues(string(t), result(err)).Inc()
	m.durations.WithLabelValues(string(t)).Observe(d.Seconds())
}

func (m *Metrics) called(backend, op string, ok bool) {
	res := "ok"
	if !ok {
		res = "error"
	}
	m.runtimeCalls.WithLabelValues(backend, op, res).Inc()
}

func (m *Metrics) pushed(err error) {
	m.statusWrites.WithLabelValues(result(err)).Inc()
}

func (m *Metrics) chain(holds bool) {
	if holds {
		m.chainBroken.Set(0)
	} else {
		m.chainBroken.Set(1)
	}
}

func result(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}
