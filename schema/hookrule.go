package schema

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// HookRules returns the rules of the platform that are not suspended, by name.
func (d *Desired) HookRules() []*HookRule {
	var all []*HookRule
	if d == nil || d.Platform == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(d.Platform.Others)) {
		if r, ok := d.Platform.Others[name].(*HookRule); ok && !r.Suspend {
			all = append(all, r)
		}
	}
	return all
}

// ID returns the uid of the rule, else its name.
func (r *HookRule) ID() string { return ID(r.UID, r.Key) }

// Covers reports whether the rule covers a resource of an app in a tenant and a project, given as <tenant>.<project>. Each is ""
// for a resource that has none: a rule that names apps, or tenants and projects, covers no such resource.
func (r *HookRule) Covers(app, tenant, projectID string) bool {
	if len(r.Spec.Apps) > 0 && !slices.Contains(r.Spec.Apps, app) {
		return false
	}
	to := r.Spec.AppliesTo
	return len(to) == 0 || tenant != "" && slices.Contains(to, tenant) || projectID != "" && slices.Contains(to, projectID)
}

// Covered returns the declared units and nodes of some kinds that a rule covers, sorted.
func (d *Desired) Covered(r *HookRule, kinds ...Kind) (keys []Key) {
	add := func(key Key, app string) {
		if slices.Contains(kinds, key.Kind) && r.Covers(app, key.Tenant, key.ProjectID()) {
			keys = append(keys, key)
		}
	}
	for key, of := range d.units() {
		add(key, of.app)
	}
	for _, n := range d.Platform.Nodes {
		add(n.Key, "")
	}
	slices.SortFunc(keys, Key.Compare)
	return keys
}

// Alert returns the first alert of the rule, or nil.
func (r *HookRule) Alert() *HookAlert {
	for _, e := range r.Spec.Then {
		if e.Alert != nil {
			return e.Alert
		}
	}
	return nil
}

// String names an effect as events and comments do; "" for an alert, which is the event itself. Projects read the events: of a URL,
// whose path may be a secret, they see the host.
func (e HookEffect) String() string {
	switch {
	case e.Webhook != nil:
		host := "unknown"
		if u, err := url.Parse(e.Webhook.URL); err == nil {
			host = u.Host
		}
		return "webhook " + host
	case e.Action != nil:
		return e.Action.Operation
	}
	return ""
}

// Effects lists the effects of the rule besides alerts, as events and comments name them.
func (r *HookRule) Effects() string {
	var all []string
	for _, e := range r.Spec.Then {
		if s := e.String(); s != "" {
			all = append(all, s)
		}
	}
	return strings.Join(all, ", ")
}

// Metrics of nodes that a rule can name.
const (
	MetricLoad            = "node_load"                 // average of one minute
	MetricMemoryAvailable = "node_memory_available_mib" // for new programs without swapping
	MetricDiskFree        = "node_disk_free_gib"        // of the fullest measured file system
	MetricClockOffset     = "node_clock_offset_ms"      // in either direction
)

// NodeMetrics lists the metrics of nodes, sorted.
func NodeMetrics() []string {
	return []string{MetricClockOffset, MetricDiskFree, MetricLoad, MetricMemoryAvailable}
}

// Exceeds reports whether a value is beyond the threshold.
func (t *HookThreshold) Exceeds(value float64) bool {
	return t.Above != nil && value > float64(*t.Above) || t.Below != nil && value < float64(*t.Below)
}

// String is the threshold as events and comments name it, such as "above 90 for 120s".
func (t *HookThreshold) String() string {
	s := ""
	switch {
	case t.Above != nil:
		s = fmt.Sprintf("above %d", *t.Above)
	case t.Below != nil:
		s = fmt.Sprintf("below %d", *t.Below)
	}
	if t.ForSeconds > 0 {
		s += fmt.Sprintf(" for %ds", t.ForSeconds)
	}
	return s
}
