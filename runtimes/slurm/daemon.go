package slurm

import (
	"context"

	"berth/runtimes"
	"berth/runtimes/slurm/profile"
)

// daemon is a daemon of a cluster: how it is started and asked, and what has to hold before and after its start.
type daemon struct {
	site
	name  string                        // in the record, the log and errors
	log   string                        // directory of its log
	op    func(verb string) runtimes.Op // on its service
	probe runtimes.Op                   // a call that needs an answer of the daemon
	// answered: it answered a moment ago, so that it does not hang.
	answered bool
	gate     func(context.Context) error // precedes a start of one that does not run; nil: nothing does
	ready    func(context.Context) error // waits until it serves; nil: its start does
}

// controlDaemons are the daemons of a control stack.
type controlDaemons struct{ *control }

// controlServices are the daemons of a control stack in the order of their start.
func controlServices() []string {
	return []string{profile.Munged, profile.MariaDB, profile.Slurmdbd, profile.Slurmctld}
}

// serviceStates asks for the states of controlServices.
func (c controlDaemons) serviceStates() []runtimes.Op {
	var ops []runtimes.Op
	for _, name := range controlServices() {
		ops = append(ops, c.service(name, "state"))
	}
	return ops
}

// daemon returns a daemon of the control stack.
func (c controlDaemons) daemon(service string, probe runtimes.Op, ready func(context.Context) error) daemon {
	return daemon{site: c.site, name: service, log: c.stack.Log(), probe: probe, ready: ready,
		op: func(verb string) runtimes.Op { return c.service(service, verb) }}
}
