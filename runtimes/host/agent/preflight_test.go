package agent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/runtimes"
)

// The error has the command that stops the distribution's unit now and after a boot.
func TestPreflightUnderSystemd(t *testing.T) {
	dir := t.TempDir()
	states := filepath.Join(dir, "states")
	script := filepath.Join(dir, "systemctl")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\ntest \"$1\" = show || exit 1\nfor unit; do :; done\ncat "+states+"/$unit\n"),
		0o755))
	require.NoError(t, os.Mkdir(states, 0o755))
	old := systemctlProgram
	systemctlProgram = script
	t.Cleanup(func() { systemctlProgram = old })
	say := func(unit, active, enabled string) {
		require.NoError(t, os.WriteFile(filepath.Join(states, unit+".service"),
			[]byte("ActiveState="+active+"\nUnitFileState="+enabled+"\n"), 0o644))
	}
	spec := func(unit string) func(string, map[string]string) (runtimes.ServiceSpec, error) {
		return func(string, map[string]string) (runtimes.ServiceSpec, error) {
			return runtimes.ServiceSpec{Path: "/usr/sbin/none-" + unit, PIDFile: dir + "/pid", DistributionUnit: unit}, nil
		}
	}
	a := New(Options{StateDir: filepath.Join(dir, "state"), EtcDir: dir, Profiles: []runtimes.Profile{{
		Services: map[string]func(string, map[string]string) (runtimes.ServiceSpec, error){"auth": spec("munge"), "worker": spec("slurmd")},
	}}})
	a.services.init = systemd{}
	look := func() error {
		return a.preflight(t.Context(),
			&runtimes.Preflight{Services: []runtimes.Service{{Name: "auth", Unit: "c"}, {Name: "worker", Unit: "c"},
				{Name: "auth", Unit: "d"}}})
	}
	say("munge", "inactive", "disabled")
	say("slurmd", "inactive", "")
	require.NoError(t, look())
	say("munge", "active", "enabled")
	say("slurmd", "failed", "enabled")
	err := look()
	require.Equal(t, runtimes.CodeForeign, faultOf(err).Code)
	require.EqualError(t, err, "munge.service of the distribution is running and enabled; run `systemctl disable --now munge`, then try "+
		"again; "+
		"slurmd.service of the distribution is enabled; run `systemctl disable --now slurmd`, then try again")
	require.NoDirExists(t, filepath.Join(dir, "state"), "nothing was written")
	require.NoError(t, os.Remove(filepath.Join(states, "munge.service")))
	require.Equal(t, runtimes.CodeIO, faultOf(look()).Code, "an unknown unit state is not absence")
}
