//go:build long

package lab_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/runtimes/host/hosttest"
	"berth/runtimes/host/lab"
)

// Hosts of each Debian suite, from images that are kept for the next time.
func TestLongHostsOfEachSuite(t *testing.T) {
	hosttest.NeedLab(t)
	before := machine(t)
	cpus, _, err := lab.MachineSize()
	require.NoError(t, err)
	for suite, series := range map[string]string{"bookworm": "22.05.", "trixie": "24.11.", "forky": ""} { // forky changes
		t.Run(suite, func(t *testing.T) {
			c := config(t)
			c.Image, c.Packages = suite, strings.Fields("mariadb-server munge slurmctld slurmd slurmdbd slurm-client slurm-wlm-basic-plugins slurm-wlm-mysql-plugin slurm-wlm-jwt-plugin")
			image, err := lab.BuildImage(t.Context(), lab.DefaultImages, suite, c.Packages, nil)
			require.NoError(t, err)
			l, err := lab.Up(t.Context(), c)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, l.Down(context.Background())) })
			in := func(node, script string) string {
				t.Helper()
				out, err := l.Run(t.Context(), node, "bash", "-ec", script)
				require.NoError(t, err, out)
				return strings.TrimSpace(out)
			}
			version, err := l.PackageVersion(t.Context(), "ctl", "slurmctld")
			require.NoError(t, err)
			t.Logf("%s of %s: Slurm %s", suite, image.Built, version)
			require.True(t, strings.HasPrefix(version, series), version)
			require.True(t, strings.HasPrefix(image.Packages["slurmctld"], version))
			require.Contains(t, in("ctl", "slurmctld -V"), version)
			require.Contains(t, in("gpu-1", "slurmd -C"), fmt.Sprintf("NodeName=gpu-1 CPUs=%d ", cpus))
			require.Equal(t, "VERSION_CODENAME="+suite, in("ctl", "grep VERSION_CODENAME /etc/os-release"))
			require.Equal(t, "bash sleep sshd", in("ctl", "ps --no-headers -eo comm,pid | awk -v me=$$ '$2 < me && $1 != \"nsenter\" {print $1}' | sort -u | xargs"), "no service of a package runs")

			in("gpu-1", "touch /usr/berth-lab-test; useradd lena; rm /usr/sbin/slurmd")
			for _, gone := range []string{"ls /usr/berth-lab-test", "id lena"} {
				_, err := l.Run(t.Context(), "ctl", "bash", "-ec", gone)
				require.Error(t, err, gone)
			}
			require.NoError(t, l.Kill("gpu-1"))
			require.NoError(t, l.Boot(t.Context(), "gpu-1"))
			in("gpu-1", "test -x /usr/sbin/slurmd && ! test -e /usr/berth-lab-test && ! id lena 2>/dev/null")
			written, err := filepath.Glob(lab.DefaultImages + "/*/root/usr/berth-lab-test")
			require.NoError(t, err)
			require.Empty(t, written, "the image is shared")
		})
	}
	require.Equal(t, before, machine(t))
}
