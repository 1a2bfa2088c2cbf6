package main

import (
	"berth/reconciler/plan"
	"berth/runtimes/memory"
	"berth/runtimes/slurm"
)

// backends are the definitions of the runtimes that are built in, by the
// runtime_backend that selects them.
func backends() map[string]string {
	return map[string]string{
		"slurm": slurm.ConfigCUE(),
	}
}

// planningRules are what a backend knows of a change without asking its hosts; nil:
// no such backend is built in.
func planningRules(backend string) plan.Rules {
	if backend == "slurm" {
		return slurm.Rules{}
	}
	return nil
}

// standIn is the memory runtime in place of a backend. It plans by that backend's
// rules, so that `berth plan` and the daemon make the same plan.
type standIn struct {
	*memory.Runtime
	rules plan.Rules
}

// Impact implements plan.Rules.
func (s standIn) Impact(verb plan.Verb, member string, before, after *plan.Unit) plan.Impact {
	return s.rules.Impact(verb, member, before, after)
}
