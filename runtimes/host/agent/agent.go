package agent

import (
	"cmp"
	"os/exec"
	"sync"

	"berth/runtimes"
)

// Options of an Agent.
type Options struct {
	Profiles []runtimes.Profile
	// StateDir holds epoch, leader, ledger and the record of accounts. Empty: /var/lib/berth.
	StateDir string
	// EtcDir holds passwd and group. Empty: /etc. With another directory the
	// agent uses neither the machine's init nor its directory services.
	EtcDir  string
	Version string
}

// Agent does operations on the machine it runs on. It is safe for concurrent use
// in one process and in several.
type Agent struct {
	allow    *allowList
	leaders  leaders
	ledger   ledger
	paths    madePaths
	files    hostFiles
	users    users
	programs programs
	services services
	version  string
	digest   func() string
}

// New returns an Agent.
func New(o Options) *Agent {
	state, etc, allow := stateDir(cmp.Or(o.StateDir, "/var/lib/berth")), cmp.Or(o.EtcDir, "/etc"), newAllowList(o.Profiles)
	accounts := accountFiles{etc}
	a := &Agent{
		allow: allow, leaders: leaders{state}, ledger: ledger{state}, paths: madePaths{state, allow},
		users:   users{state: state, accounts: accounts, allow: allow},
		version: o.Version, digest: sync.OnceValue(ownDigest),
	}
	a.files = hostFiles{allow, accounts, a.paths}
	a.services = services{allow, state, daemons{accounts, a.files}}
	if o.EtcDir == "" {
		if name, err := exec.LookPath("/usr/bin/getent"); err == nil {
			a.users.getent = name
		}
		if initSystem() == "systemd" {
			a.services.init = systemd{}
		}
	}
	a.programs = programs{allow, a.users}
	return a
}
