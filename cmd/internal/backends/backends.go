// Package backends lists the runtimes that are built into Berth's programs. It must
// not know who uses them.
package backends

import (
	"berth/reconciler/plan"
	"berth/runtimes/memory"
	"berth/runtimes/slurm"
)

// Definitions returns the CUE definitions of the built-in runtimes, by the
// runtime_backend that selects them.
func Definitions() map[string]string {
	return map[string]string{
		"slurm": slurm.ConfigCUE(),
	}
}

// Rules returns what a backend knows of a change without asking its hosts, or nil
// for a backend that is not built in.
func Rules(backend string) plan.Rules {
	if backend == "slurm" {
		return slurm.Rules{}
	}
	return nil
}

// StandIn is the memory runtime in place of a backend. It plans by the rules of
// that backend, so that `berth plan` and the daemon make the same plan.
type StandIn struct {
	*memory.Runtime
	rules plan.Rules
}

// NewStandIn returns a memory runtime on world in place of a backend.
func NewStandIn(world *memory.World, backend string) StandIn {
	return StandIn{memory.New(world), Rules(backend)}
}

// Impact implements plan.Rules.
func (s StandIn) Impact(verb plan.Verb, member string, before, after *plan.Unit) plan.Impact {
	return s.rules.Impact(verb, member, before, after)
}
