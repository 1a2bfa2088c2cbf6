package hosttest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/host/hosttest"
	"berth/runtimes/host/lab"
)

// The login account reaches the helper as root, and nothing else.
func TestReleasedHelperOnLabHosts(t *testing.T) {
	l, hosts := hosttest.Lab(t, lab.Node{Name: "ctl"}, lab.Node{Name: "w1", Devices: []string{"/dev/nvidia0"}})
	far := func(name string) runtimes.Host {
		n, ok := l.Node(name)
		require.True(t, ok)
		return hosts.Host(plan.Member{Node: n.Name, Address: n.Address, SSHPort: 22})
	}
	for _, name := range []string{"ctl", "w1"} {
		begun := time.Now()
		res, err := far(name).Do(t.Context(), runtimes.Stamp{}, runtimes.Op{Info: &runtimes.Info{}},
			runtimes.Op{Stat: &runtimes.Stat{Paths: []string{"/dev/nvidia0"}}})
		require.NoError(t, err)
		t.Logf("%s: first call, connection and sudo included, after %v", name, time.Since(begun))
		require.Equal(t, name, res[0].Info.Hostname)
		require.Equal(t, 0, res[0].Info.UID)
		require.Equal(t, "none", res[0].Info.Init)
		require.Equal(t, name == "w1", res[1].Stats[0].Exists)
		want, err := l.Run(t.Context(), name, "sha256sum", "/usr/local/sbin/berth-host")
		require.NoError(t, err)
		require.Equal(t, strings.Fields(want)[0], res[0].Info.Digest)
	}

	// Its memory after requests and answers of a usual size.
	stamp := runtimes.Stamp{Epoch: 1, Commit: "c0ffee", CorrelationID: "test", ActionID: "a"}
	_, err := far("w1").Do(t.Context(), stamp, runtimes.Op{Dir: &runtimes.MakeDir{Path: "/var/lib/berth/instances", Mode: 0o755}})
	require.NoError(t, err)
	big, record := "/var/lib/berth/instances/c.json", []byte(`"`+strings.Repeat("x", 64<<10)+`"`)
	for range 20 {
		_, err := far("w1").Do(t.Context(), stamp, runtimes.Op{Write: &runtimes.WriteFile{Path: big, Data: record, Mode: 0o600}},
			runtimes.Op{Read: &runtimes.ReadFile{Path: big}})
		require.NoError(t, err)
	}
	status, err := l.Run(t.Context(), "w1", "sh", "-c", "cat /proc/$(pgrep -x berth-host)/status")
	require.NoError(t, err)
	resident := field(t, status, "VmHWM:")
	t.Logf("berth-host: %d KiB resident at most", resident)
	require.LessOrEqual(t, resident, 15<<10)

	st, err := os.Stat(filepath.Join(l.Dir, "berth-host"))
	require.NoError(t, err)
	t.Logf("berth-host: %d bytes", st.Size())
	require.LessOrEqual(t, st.Size(), int64(10_000_000))

	// Nothing but the helper is reached with Berth's key, and it takes no arguments there.
	n, _ := l.Node("w1")
	cmd := exec.CommandContext(t.Context(), "ssh", "-F", "none", "-i", l.KeyFile(), "-o", "BatchMode=yes", "-o",
		"StrictHostKeyChecking=yes",
		"-o", "UserKnownHostsFile="+l.KnownHosts(), l.User()+"@"+n.Address, "sudo -n id; id")
	out, err := cmd.Output()
	require.NoError(t, err)
	require.Regexp(t, `^\{"berth_host":3,"version":"[^"]*"\}\n$`, string(out))
	denied, err := l.Run(t.Context(), "w1", "su", "-s", "/bin/sh", l.User(), "-c",
		"sudo -n /usr/local/sbin/berth-host replace </dev/null 2>&1")
	require.Error(t, err, denied)
	require.Contains(t, denied, "password is required")
}

func TestHelperIsReplacedOnlyByTheRecordedDigest(t *testing.T) {
	l, hosts := hosttest.Lab(t, lab.Node{Name: "w1"})
	n, _ := l.Node("w1")
	in := func(script string) (string, error) { return l.Run(t.Context(), "w1", "sh", "-c", script) }
	out, err := in("cp /usr/local/sbin/berth-host /root/next && echo >>/root/next && /usr/local/sbin/berth-host replace </root/next")
	require.Error(t, err)
	require.Contains(t, out, "want ")
	out, err = in("sha256sum /root/next | tee /etc/berth/berth-host.sha256 && /usr/local/sbin/berth-host replace </root/next")
	require.NoError(t, err, out)
	res, err := hosts.Host(plan.Member{Node: n.Name, Address: n.Address, SSHPort: 22}).Do(t.Context(), runtimes.Stamp{},
		runtimes.Op{Info: &runtimes.Info{}})
	require.NoError(t, err)
	require.Equal(t, strings.Fields(out)[0], res[0].Info.Digest)
}

func field(t *testing.T, status, name string) int {
	t.Helper()
	for line := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			require.NoError(t, err)
			return kib
		}
	}
	t.Fatalf("no %s in:\n%s", name, status)
	return 0
}
