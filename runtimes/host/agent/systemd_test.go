package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/examples/await"
	"berth/runtimes"
)

func TestUnitText(t *testing.T) {
	forking := service{name: "store", unit: "physics", timeout: 10 * time.Second, spec: runtimes.ServiceSpec{
		Path: "/usr/sbin/stored", Args: []string{"-Z", "--conf", `CPUs=4 Gres="gpu:2" $HOME 50% a\b`, ""},
		Env:  []string{"CONF=/etc/store/physics.conf"},
		User: "store", PIDFile: "/run/store-physics/pid", Forks: true, LogFile: "/var/log/store.log",
		RunDirs: []runtimes.MakeDir{{Path: "/run/store-physics", Mode: 0o755, Owner: "store", Group: "adm"}},
		Links:   []runtimes.MakeLink{{Path: "/run/link-physics", Target: "store"}},
	}}
	require.Equal(t, `# Written by berth-host; it goes when the service does.
[Unit]
Description=Berth: store physics
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=forking
PIDFile=/run/store-physics/pid
User=store
Environment=CONF=/etc/store/physics.conf
Environment=BERTH_SERVICE=store/physics
ExecStartPre=+/usr/bin/install -d -m 0755 -o store -g adm /run/store-physics
ExecStartPre=+/usr/bin/ln -sfnT store /run/link-physics
ExecStart=/usr/sbin/stored -Z --conf "CPUs=4 Gres=\"gpu:2\" $$HOME 50%% a\\b" ""
TimeoutStartSec=infinity
Restart=on-failure
RestartSec=2
LimitNOFILE=131072
TasksMax=infinity

[Install]
WantedBy=multi-user.target
`, unitText(forking))

	plain := service{name: "db", timeout: time.Second,
		spec: runtimes.ServiceSpec{Path: "/usr/sbin/db", PIDFile: "/run/db/pid", LogFile: "/var/log/db.log"}}
	require.Contains(t, unitText(plain), "Type=exec\nStandardOutput=append:/var/log/db.log\nStandardError=inherit\n")
	require.NotContains(t, unitText(plain), "PIDFile")
}

func TestUnitNames(t *testing.T) {
	name, err := systemd{}.file(service{name: "store", unit: "physics"})
	require.NoError(t, err)
	require.Equal(t, "berth-store-physics.service", name)
	name, err = systemd{}.file(service{name: "db"})
	require.NoError(t, err)
	require.Equal(t, "berth-db.service", name)
	for _, bad := range []string{"../x", "a b", "a@b", "a.service", "a\n"} {
		_, err := systemd{}.file(service{name: "store", unit: bad})
		require.Error(t, err, bad)
	}
}

func TestUnitState(t *testing.T) {
	const name = "berth-db.service"
	require.Equal(t, runtimes.ServiceStatus{Running: true, PID: 1}, withoutTime(unitState(name, "ActiveState=active\nMainPID=1\n")))
	require.Equal(t, runtimes.ServiceStatus{}, unitState(name, "ActiveState=inactive\nMainPID=0\n"))
	require.Equal(t, runtimes.ServiceStatus{Detail: "its unit is failed, and `journalctl --unit berth-db.service` shows why"},
		unitState(name, "ActiveState=failed\nMainPID=0\n"))
	require.Equal(t, runtimes.ServiceStatus{Detail: "its unit is activating, and `journalctl --unit berth-db.service` shows why"},
		unitState(name, "ActiveState=activating\nMainPID=77\n"))
}

func withoutTime(s runtimes.ServiceStatus) runtimes.ServiceStatus {
	s.Since = time.Time{}
	return s
}

// A distribution's unit conflicts if it runs or would run after the next boot.
func TestUnitObstacle(t *testing.T) {
	for out, want := range map[string]string{
		"ActiveState=active\nUnitFileState=enabled\n":         "running and enabled",
		"ActiveState=activating\nUnitFileState=disabled\n":    "running",
		"ActiveState=inactive\nUnitFileState=enabled\n":       "enabled",
		"ActiveState=failed\nUnitFileState=enabled-runtime\n": "enabled",
		"ActiveState=inactive\nUnitFileState=disabled\n":      "",
		"ActiveState=failed\nUnitFileState=masked\n":          "",
		"ActiveState=inactive\nUnitFileState=\n":              "", // no such unit
	} {
		require.Equal(t, want, unitObstacle(out), out)
	}
}

func TestForeignUnitFileIsKept(t *testing.T) {
	name := filepath.Join(t.TempDir(), "berth-db.service")
	require.NoError(t, ownUnitFile(name))
	require.NoError(t, os.WriteFile(name, []byte(unitText(service{name: "db"})), 0o644))
	require.NoError(t, ownUnitFile(name))
	require.NoError(t, os.WriteFile(name, []byte("[Unit]\n"), 0o644))
	require.ErrorContains(t, ownUnitFile(name), "was not made by Berth")
}

// fakeSystemd is a systemctl that logs its arguments, with one state for all units.
func fakeSystemd(t *testing.T) (state func(string), calls func() string) {
	t.Helper()
	dir := t.TempDir()
	oldDir, oldProgram := unitDir, systemctlProgram
	t.Cleanup(func() { unitDir, systemctlProgram = oldDir, oldProgram })
	unitDir, systemctlProgram = dir, filepath.Join(dir, "systemctl")
	log, show := filepath.Join(dir, "log"), filepath.Join(dir, "show")
	script := "#!/bin/sh\nif [ $1 = show ]; then cat " + show + "; else echo \"$*\" >>" + log + "; fi\n"
	require.NoError(t, os.WriteFile(systemctlProgram, []byte(script), 0o755))
	state = func(s string) {
		require.NoError(t, os.WriteFile(show, []byte("ActiveState="+s+"\nMainPID=1\n"), 0o644))
	}
	return state, func() string {
		data, err := os.ReadFile(log)
		require.True(t, err == nil || os.IsNotExist(err))
		_ = os.Remove(log)
		return string(data)
	}
}

// A changed unit is outdated; a start corrects it and does not restart the service.
func TestStartCorrectsTheUnitOfARunningService(t *testing.T) {
	state, calls := fakeSystemd(t)
	d, s := systemd{}, service{name: "store", unit: "physics", timeout: time.Minute, spec: runtimes.ServiceSpec{Path: "/usr/sbin/stored"}}
	state("inactive")
	st, err := d.state(t.Context(), s)
	require.NoError(t, err)
	require.Equal(t, runtimes.ServiceStatus{}, st)
	started, err := d.start(t.Context(), s)
	require.NoError(t, err)
	require.True(t, started)
	require.Equal(t, "enable --now berth-store-physics.service\n", calls())

	state("active")
	st, err = d.state(t.Context(), s)
	require.NoError(t, err)
	require.True(t, st.Running && !st.Outdated)
	file := filepath.Join(unitDir, "berth-store-physics.service")
	for _, change := range []string{unitText(s) + "Nice=5\n", unitHeader + "\n"} {
		require.NoError(t, os.WriteFile(file, []byte(change), 0o644))
		st, err = d.state(t.Context(), s)
		require.NoError(t, err)
		require.True(t, st.Running && st.Outdated)
		started, err = d.start(t.Context(), s)
		require.NoError(t, err)
		require.False(t, started)
		require.Equal(t, "daemon-reload\n", calls())
		st, err = d.state(t.Context(), s)
		require.NoError(t, err)
		require.False(t, st.Outdated)
	}
	require.NoError(t, os.Remove(file))
	st, err = d.state(t.Context(), s)
	require.NoError(t, err)
	require.True(t, st.Outdated, "it does not start at the next boot")
}

// The verb kill spares the daemon's children, which may be jobs.
func TestKillEndsTheMainProcessOnly(t *testing.T) {
	state, calls := fakeSystemd(t)
	state("active")
	_, err := systemd{}.stop(t.Context(), service{name: "store", timeout: time.Minute}, true)
	require.NoError(t, err)
	require.Equal(t, "kill --kill-whom=main --signal=SIGKILL berth-store.service\ndisable --now --no-reload "+
		"berth-store.service\ndaemon-reload\nreset-failed berth-store.service\n", calls())
}

func TestClearStopsScopes(t *testing.T) {
	state, calls := fakeSystemd(t)
	v := services{init: systemd{}}
	s := service{name: "store", timeout: time.Second,
		spec: runtimes.ServiceSpec{Unit: runtimes.UnitSpec{Scopes: []string{"a_steps.scope", "steps.scope"}}}}
	state("inactive")
	changed, err := v.clear(t.Context(), s)
	require.NoError(t, err)
	require.False(t, changed)
	require.Empty(t, calls())
	state("active")
	for said := ""; !strings.Contains(said, "kill --signal=SIGKILL a_steps.scope\n"); s.timeout *= 2 {
		require.Less(t, s.timeout, await.Limit, said)
		_, err = v.init.endScopes(t.Context(), s)
		require.Error(t, err, "its processes do not end")
		said = calls()
	}
	s.timeout = time.Minute
	time.AfterFunc(300*time.Millisecond, func() { state("inactive") })
	changed, err = v.init.endScopes(t.Context(), s)
	require.NoError(t, err)
	require.True(t, changed)
}

// The scopes of a daemon have settings while it may have jobs: an exceeded memory of one
// job ends no other, and a reboot kills jobs. A file of an administrator stays.
func TestScopesHaveSettings(t *testing.T) {
	state, calls := fakeSystemd(t)
	d, s := systemd{}, service{name: "store", timeout: time.Minute,
		spec: runtimes.ServiceSpec{Path: "/usr/sbin/stored", Unit: runtimes.UnitSpec{Scopes: []string{"a_steps.scope", "steps.scope"}}}}
	state("inactive")
	_, err := d.start(t.Context(), s)
	require.NoError(t, err)
	file := filepath.Join(unitDir, "a_steps.scope.d", "berth.conf")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(text), "\nOOMPolicy=continue\n")
	require.Contains(t, string(text), "\nKillSignal=SIGKILL\n")
	calls()

	state("active")
	require.NoError(t, os.Remove(file))
	st, err := d.state(t.Context(), s)
	require.NoError(t, err)
	require.True(t, st.Outdated)
	_, err = d.start(t.Context(), s)
	require.NoError(t, err)
	require.Equal(t, "daemon-reload\n", calls())
	st, err = d.state(t.Context(), s)
	require.NoError(t, err)
	require.False(t, st.Outdated)

	_, err = d.stop(t.Context(), s, false)
	require.NoError(t, err)
	require.FileExists(t, file, "its jobs go on")
	override := filepath.Join(unitDir, "steps.scope.d", "override.conf")
	require.NoError(t, os.WriteFile(override, nil, 0o644))
	state("inactive")
	calls()
	changed, err := d.endScopes(t.Context(), s)
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, "daemon-reload\n", calls())
	require.NoDirExists(t, filepath.Dir(file))
	require.FileExists(t, override)
	require.NoFileExists(t, filepath.Join(unitDir, "steps.scope.d", "berth.conf"))
}

// A service without its device files is not started, and its status names them.
func TestServiceNeedsItsDevices(t *testing.T) {
	state, calls := fakeSystemd(t)
	dir := t.TempDir()
	missing := filepath.Join(dir, "gpu0")
	spec := runtimes.ServiceSpec{Path: "/usr/sbin/stored", Devices: []string{"/dev/null", missing}}
	v := services{
		allow: newAllowList([]runtimes.Profile{{Services: map[string]func(string, map[string]string) (runtimes.ServiceSpec, error){
			"store": func(string, map[string]string) (runtimes.ServiceSpec, error) { return spec, nil },
		}}}),
		state: stateDir(filepath.Join(dir, "state")), init: systemd{},
	}
	state("activating")
	want := "no device file " + missing + " on this host; make it, and have it made at each boot (tmpfiles.d(5))"
	for _, verb := range []string{"start", "restart"} {
		_, err := v.do(t.Context(), &runtimes.Service{Name: "store", Verb: verb})
		require.EqualError(t, err, want)
	}
	require.Empty(t, calls())
	res, err := v.do(t.Context(), &runtimes.Service{Name: "store", Verb: "state"})
	require.NoError(t, err)
	require.Equal(t, want+"; its unit is activating, and `journalctl --unit berth-store.service` shows why", res.Service.Detail)
	// A running one goes on, and a regular file does not count as a device.
	state("active")
	require.NoError(t, os.WriteFile(missing, nil, 0o644))
	_, err = v.do(t.Context(), &runtimes.Service{Name: "store", Verb: "start"})
	require.NoError(t, err)
	spec.Devices = []string{"/dev/null"}
	state("inactive")
	_, err = v.do(t.Context(), &runtimes.Service{Name: "store", Verb: "restart"})
	require.NoError(t, err)
}
