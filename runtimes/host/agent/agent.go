package agent

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

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
	// Root is the directory that has proc, sys and dev of the host. Empty: /.
	Root string
	// StartTime is the time after which a daemon in the foreground counts as started.
	// 0: 100 ms.
	StartTime time.Duration
	// ReplaceTime is the time that a daemon has to replace itself by another process.
	// 0: 1 s.
	ReplaceTime time.Duration
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
	machine  machine
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
		machine: newMachine(cmp.Or(o.Root, "/"), state, o.Profiles),
		version: o.Version, digest: sync.OnceValue(ownDigest),
	}
	a.files = hostFiles{allow, accounts, a.paths}
	a.services = services{allow, state,
		daemons{accounts, a.files, cmp.Or(o.StartTime, 100*time.Millisecond), cmp.Or(o.ReplaceTime, time.Second)}}
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

// info describes the host and this program.
func (a *Agent) info() (runtimes.Result, error) {
	seen, err := a.leaders.latest()
	if err != nil {
		return runtimes.Result{}, err
	}
	host, err := os.Hostname()
	if err != nil {
		return runtimes.Result{}, ioFault("hostname", err)
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return runtimes.Result{Info: &runtimes.HostInfo{
		Hostname: host, Version: a.version, Digest: a.digest(), BootID: strings.TrimSpace(string(boot)),
		Epoch: seen.epoch, Init: initSystem(), UID: os.Getuid(),
	}}, nil
}

// initSystem returns "systemd" or "none" (sd_booted(3)).
func initSystem() string {
	if st, err := os.Lstat("/run/systemd/system"); err == nil && st.IsDir() {
		return "systemd"
	}
	return "none"
}

// ownDigest returns the sha256 of the running program.
func ownDigest() string {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}
