package agent

import (
	"context"
	"time"

	"berth/runtimes"
)

// Options of an Agent.
type Options struct {
	Profiles []runtimes.Profile
	// StateDir holds epoch, leader, ledger and the record of accounts. Empty: /var/lib/berth.
	StateDir string
	// EtcDir holds passwd, group and hosts. Empty: /etc. With another directory the
	// agent uses neither the machine's init nor its directory services.
	EtcDir  string
	Version string
}

// Agent does operations on the machine it runs on. It is safe for concurrent use
// in one process and in several.
type Agent struct {
	profiles []runtimes.Profile
	allow    *allowList
	services servicer
	state    string
	etc      string
	getent   string // program that queries directory services; empty: none
	version  string
	digest   func() string
}

// servicer runs services: under systemd if that is the init system, otherwise as
// daemons. The profile has checked the unit.
type servicer interface {
	state(ctx context.Context, s service) (runtimes.ServiceStatus, error)
	// start returns once the service runs. A running service is not restarted.
	start(ctx context.Context, s service) (changed bool, err error)
	// stop returns once the service is down. kill: with SIGKILL at once.
	stop(ctx context.Context, s service, kill bool) (changed bool, err error)
	// obstacles describes conflicts with the distribution's own service.
	obstacles(ctx context.Context, s service) ([]string, error)
}

// service is a service of a host.
type service struct {
	name, unit string
	spec       runtimes.ServiceSpec
	timeout    time.Duration // of a start or stop
}

// mark is an entry in the environment of a daemon that Berth starts. A process without
// it is not the service, even if the pid file names it, and gets no signal.
func (s service) mark() string { return "BERTH_SERVICE=" + s.name + "/" + s.unit }

func (s service) String() string {
	if s.unit == "" {
		return s.name
	}
	return s.name + " " + s.unit
}
