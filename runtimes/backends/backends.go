// Package backends lists the runtimes that Berth is built with.
//
// To add one, write a package below runtimes with a value that implements
// runtimes.Backend, and add it to All. Add a new name to #RuntimeBackend in
// schema/cue/common.cue, too. The command berth and
// the helper berth-host both read the list of All.
//
// It must not know particular features of a runtime.
package backends

import (
	"encoding/json"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm"
	"berth/runtimes/slurm/boundary"
	"berth/schema"
)

// All returns every backend, the one for examples in messages first.
func All() []runtimes.Backend {
	return []runtimes.Backend{
		slurm.Backend{},
	}
}

// Names returns the names of all backends.
func Names() []string {
	var names []string
	for _, b := range All() {
		names = append(names, b.Name())
	}
	return names
}

// Definitions returns the CUE source of each backend by its name, as
// load.Options takes it.
func Definitions() map[string]string {
	sources := map[string]string{}
	for _, b := range All() {
		sources[b.Name()] = b.ConfigCUE()
	}
	return sources
}

// Releases returns the versions that each backend knows by its name, as
// estate.Options takes them.
func Releases() map[string]schema.Releases {
	releases := map[string]schema.Releases{}
	for _, b := range All() {
		if known := b.Releases(); known != nil {
			releases[b.Name()] = known
		}
	}
	return releases
}

// Checks returns the check of a config of each backend by its name, as
// estate.Options takes them.
func Checks() map[string]schema.ConfigCheck {
	checks := map[string]schema.ConfigCheck{}
	for _, b := range All() {
		checks[b.Name()] = b.CheckConfig
	}
	return checks
}

// QueueNames returns how to read the names of queues from a config of a backend; nil for an unknown
// backend.
func QueueNames(name string) func(config json.RawMessage) schema.QueueNames {
	for _, b := range All() {
		if b.Name() == name {
			return b.QueueNames
		}
	}
	return nil
}

// Rules returns the planning rules of a backend, or nil for an unknown name.
func Rules(name string) plan.Rules {
	for _, b := range All() {
		if b.Name() == name {
			return b.Rules()
		}
	}
	return nil
}

// Limits returns the fields of a project's terms by the names of a backend's limits; nil for an
// unknown backend.
func Limits(name string) map[string]string {
	for _, b := range All() {
		if b.Name() == name {
			return b.Limits()
		}
	}
	return nil
}

// Profiles returns what berth-host allows for each backend.
func Profiles() []runtimes.Profile {
	var profiles []runtimes.Profile
	for _, b := range All() {
		profiles = append(profiles, b.Profile())
	}
	return profiles
}

// Contract names the text of the contract of queue maps, as schema.QueueModes takes it.
func Contract() string { return boundary.Contract() }
