package slurm

import (
	"encoding/json"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// Backend registers this runtime (package backends).
type Backend struct{}

// Name implements runtimes.Backend.
func (Backend) Name() string { return "slurm" }

// ConfigCUE implements runtimes.Backend.
func (Backend) ConfigCUE() string { return cluster.CUE() }

// ConfigExample implements runtimes.Backend.
func (Backend) ConfigExample() string { return cluster.Example() }

// CheckConfig implements runtimes.Backend.
func (Backend) CheckConfig(v *schema.AppVersion, config json.RawMessage) schema.ConfigFacts {
	return cluster.CheckConfig(v, config)
}

// QueueNames implements runtimes.Backend.
func (Backend) QueueNames(config json.RawMessage) schema.QueueNames {
	return cluster.QueueNames(config)
}

// Releases implements runtimes.Backend.
func (Backend) Releases() schema.Releases {
	var all schema.Releases
	for _, r := range cli.Releases() {
		all = append(all, schema.Release{Series: r.Series, From: r.From, Step: r.Tools == nil})
	}
	return all
}

// Rules implements runtimes.Backend.
func (Backend) Rules() plan.Rules { return cluster.Rules{} }

// Profile implements runtimes.Backend.
func (Backend) Profile() runtimes.Profile { return profile.Profile() }

// New implements runtimes.Backend.
func (Backend) New(hosts runtimes.Hosts, l runtimes.Limits) runtimes.Runtime {
	return New(Options{Hosts: hosts, Timeouts: Timeouts{Call: l.Command, Ready: l.Ready}})
}
