package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/runtimes"
)

func TestUnitText(t *testing.T) {
	forking := service{name: "store", unit: "physics", timeout: 10 * time.Second, spec: runtimes.ServiceSpec{
		Path: "/usr/sbin/stored", Args: []string{"-Z", "--conf", `CPUs=4 Gres="gpu:2" $HOME 50% a\b`, ""}, Env: []string{"CONF=/etc/store/physics.conf"},
		User: "store", PIDFile: "/run/store-physics/pid", Forks: true, LogFile: "/var/log/store.log",
		RunDirs: []runtimes.MakeDir{{Path: "/run/store-physics", Mode: 0o755, Owner: "store", Group: "adm"}},
		Links:   []runtimes.MakeLink{{Path: "/run/link-physics", Target: "store"}},
	}}
	require.Equal(t, `# Written by berth-host; it goes when the service does.
[Unit]
Description=Berth: store physics
After=network-online.target

[Service]
Type=forking
PIDFile=/run/store-physics/pid
User=store
Environment=CONF=/etc/store/physics.conf
Environment=BERTH_SERVICE=store/physics
ExecStartPre=+/usr/bin/install -d -m 0755 -o store -g adm /run/store-physics
ExecStartPre=+/usr/bin/ln -sfnT store /run/link-physics
ExecStart=/usr/sbin/stored -Z --conf "CPUs=4 Gres=\"gpu:2\" $$HOME 50%% a\\b" ""
KillMode=process
TimeoutStopSec=10
Restart=on-failure
RestartSec=2
LimitNOFILE=131072
TasksMax=infinity

[Install]
WantedBy=multi-user.target
`, unitText(forking))

	plain := service{name: "db", timeout: time.Second, spec: runtimes.ServiceSpec{Path: "/usr/sbin/db", PIDFile: "/run/db/pid", LogFile: "/var/log/db.log"}}
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
	require.Equal(t, runtimes.ServiceStatus{Running: true, PID: 1}, withoutTime(unitState("ActiveState=active\nMainPID=1\n")))
	require.Equal(t, runtimes.ServiceStatus{}, unitState("ActiveState=failed\nMainPID=0\n"))
	require.Equal(t, runtimes.ServiceStatus{}, unitState("ActiveState=activating\nMainPID=77\n"))
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
