package rules

import (
	"encoding/json"
	"maps"
	"strconv"
	"time"

	"berth/reconciler/nodes"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/event"
)

// Values returns the metrics of a node. One that the host did not report is absent.
func Values(m *nodes.Measured) map[string]float64 {
	out := map[string]float64{}
	if m == nil {
		return out
	}
	if m.Load != nil {
		out[schema.MetricLoad] = *m.Load
	}
	if m.AvailableMiB > 0 {
		out[schema.MetricMemoryAvailable] = float64(m.AvailableMiB)
	}
	for i, d := range m.Disks {
		if free := float64(d.FreeGiB); i == 0 || free < out[schema.MetricDiskFree] {
			out[schema.MetricDiskFree] = free
		}
	}
	out[schema.MetricClockOffset] = float64(max(m.ClockOffset, -m.ClockOffset))
	return out
}

// Sampler makes events of samples of nodes: one when a threshold was exceeded for its time, and one when that has ended. It keeps
// since when a threshold is exceeded; a restart, or an observation without an answer, begins that time again. Make it with
// NewSampler. It is not safe for concurrent use.
type Sampler struct {
	since map[Crossing]time.Time
}

// NewSampler returns a Sampler without samples.
func NewSampler() *Sampler { return &Sampler{since: map[Crossing]time.Time{}} }

// Sample returns the events of the values of a node. The history says which thresholds are exceeded already. No values: the node
// did not answer, and no threshold begins or ends.
func (s *Sampler) Sample(h *History, all []*schema.HookRule, node, revision string, values map[string]float64, now time.Time) []plan.Event {
	maps.DeleteFunc(s.since, func(c Crossing, _ time.Time) bool { return c.Node == node && !hasThreshold(all, c.Rule) })
	var out []plan.Event
	for _, r := range all {
		t := r.Spec.When.Threshold
		if t == nil {
			continue
		}
		c := Crossing{r.ID(), node}
		value, isKnown := values[t.Metric]
		_, isExceeded := h.exceeded[c]
		switch {
		case !isKnown:
			delete(s.since, c)
		case !t.Exceeds(value):
			delete(s.since, c)
			if isExceeded {
				out = append(out, crossed(event.NodeThresholdEnded, "ended", r, node, revision, value, now))
			}
		case isExceeded:
		default:
			if s.since[c].IsZero() {
				s.since[c] = now
			}
			if now.Sub(s.since[c]) >= time.Duration(t.ForSeconds)*time.Second {
				out = append(out, crossed(event.NodeThresholdExceeded, "exceeded", r, node, revision, value, now))
			}
		}
	}
	return out
}

func hasThreshold(all []*schema.HookRule, id string) bool {
	for _, r := range all {
		if r.ID() == id {
			return r.Spec.When.Threshold != nil
		}
	}
	return false
}

// crossed returns the event of a threshold that begins or ends to be exceeded.
func crossed(t event.Type, status string, r *schema.HookRule, node, revision string, value float64, now time.Time) plan.Event {
	data, err := json.Marshal(event.NodeThreshold{
		ResourceName: node, Rule: r.Key.Name, RuleID: r.ID(), Metric: r.Spec.When.Threshold.Metric,
		Value: strconv.FormatFloat(value, 'f', -1, 64), Threshold: r.Spec.When.Threshold.String(), Status: status, Revision: revision,
	})
	if err != nil {
		panic(err) // strings only
	}
	about := schema.Key{Kind: schema.KindNode, Name: node}
	return plan.Event{EventID: event.ID(t, about, r.ID(), int(now.UnixMilli())), EventType: string(t), OccurredAt: now.UTC(),
		Version: event.Version, Payload: data}
}
