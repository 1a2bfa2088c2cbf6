// Package second is a runtime whose units exist in the process only.
//
// It must not know another runtime.
package second

import (
	"context"
	"encoding/json"
	"sync"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/schema"
)

// Backend registers this runtime.
type Backend struct{}

// Name implements runtimes.Backend.
func (Backend) Name() string { return "ray" }

// Limits implements runtimes.Backend.
func (Backend) Limits() map[string]string { return nil }

// ConfigExample implements runtimes.Backend.
func (Backend) ConfigExample() string { return "color: blue\n" }

// ConfigCUE implements runtimes.Backend.
func (Backend) ConfigCUE() string {
	return "#Config: {color?: \"red\" | \"blue\"}\n#Parameters: {color: *\"red\" | \"blue\"}\n"
}

// CheckConfig implements runtimes.Backend.
func (Backend) CheckConfig(*schema.AppVersion, json.RawMessage) schema.ConfigFacts {
	return schema.ConfigFacts{}
}

// QueueNames implements runtimes.Backend.
func (Backend) QueueNames(json.RawMessage) schema.QueueNames { return schema.QueueNames{} }

// Reference implements runtimes.Backend.
func (Backend) Reference() []byte { return nil }

// Releases implements runtimes.Backend.
func (Backend) Releases() schema.Releases { return nil }

// Rules implements runtimes.Backend.
func (Backend) Rules() plan.Rules { return rules{} }

// Profile implements runtimes.Backend.
func (Backend) Profile() runtimes.Profile {
	return runtimes.Profile{Name: "ray", Paths: []string{"/etc/second"}}
}

// New implements runtimes.Backend.
func (Backend) New(runtimes.Hosts, runtimes.Limits) runtimes.Runtime {
	return &runtime{units: map[schema.Key]*plan.Unit{}, running: map[schema.Key]map[string]bool{}}
}

type rules struct{}

func (rules) Impact(verb plan.Verb, _ string, _, _ *plan.Unit) plan.Impact {
	return plan.Impact{Notes: []string{"second runtime: " + string(verb)}}
}

type runtime struct {
	rules
	mu      sync.Mutex
	units   map[schema.Key]*plan.Unit
	running map[schema.Key]map[string]bool
}

func (r *runtime) Observe(_ context.Context, s runtimes.Scope) plan.Observed {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.units[s.Key]
	if u == nil {
		return plan.Observed{Key: s.Key, Presence: plan.Absent}
	}
	o := plan.Observed{Key: s.Key, Presence: plan.Present, Complete: true, Unit: u}
	for _, m := range u.Members {
		if r.running[s.Key][m.Name] {
			o.Members = append(o.Members, plan.MemberState{Name: m.Name, Node: m.Node, State: plan.Running})
		}
	}
	return o
}

func (r *runtime) Apply(_ context.Context, c runtimes.Change) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := c.Plan.Key
	switch c.Action.Verb {
	case plan.Create:
		r.units[key] = c.Plan.After
		control, _ := c.Plan.After.Control()
		r.running[key] = map[string]bool{control.Name: true}
	case plan.Join, plan.Start:
		r.running[key][c.Action.Member] = true
	case plan.Delete:
		delete(r.units, key)
	}
	return nil
}
