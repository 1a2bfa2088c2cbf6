//go:build long

package lab_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/runtimes/host/hosttest"
	"berth/runtimes/host/lab"
)

// imagesDir is the environment variable with the directory of the image that
// TestLongImageOfAKilledBuild builds in a process of its own.
const imagesDir = "BERTH_TEST_IMAGES"

// Hosts of each Debian suite, from images that are kept for the next time.
func TestLongHostsOfEachSuite(t *testing.T) {
	hosttest.NeedLab(t)
	before := machine(t)
	cpus, _, err := lab.MachineSize()
	require.NoError(t, err)
	for suite, series := range map[string]string{"bookworm": "22.05.", "trixie": "24.11.", "forky": ""} { // forky changes
		t.Run(suite, func(t *testing.T) {
			c := config(t)
			c.Image, c.Packages = suite, strings.Fields("mariadb-server munge slurmctld slurmd slurmdbd slurm-client "+
				"slurm-wlm-basic-plugins slurm-wlm-mysql-plugin slurm-wlm-jwt-plugin")
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
			require.Equal(t, "bash sleep sshd",
				in("ctl", "ps --no-headers -eo comm,pid | awk -v me=$$ '$2 < me && $1 != \"nsenter\" {print $1}' | sort -u | xargs"),
				"no service of a package runs")

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

func TestLongFailedBuildLeavesNoImage(t *testing.T) {
	images := filepath.Join(t.TempDir(), "images")
	for script, why := range map[string]string{
		unpack + "echo E: no such mirror >&2; exit 25":                                       "no such mirror",
		strings.Replace(unpack, "'Package", "'# Package", 1):                                 "read its packages",
		unpack + `sed -i "s/Package: slurmctld/Package: other/" "$root/var/lib/dpkg/status"`: "slurmctld was not installed",
	} {
		mmdebstrap(t, script)
		_, err := lab.BuildImage(t.Context(), images, "trixie", []string{"slurmctld", "slurmd"}, nil)
		require.ErrorContains(t, err, "image trixie: ")
		require.ErrorContains(t, err, why)
		left, err := filepath.Glob(images + "/trixie-*")
		require.NoError(t, err)
		require.Empty(t, left)
	}
	mmdebstrap(t, unpack)
	_, err := lab.BuildImage(t.Context(), images, "trixie", []string{"slurmctld", "slurmd"}, nil)
	require.NoError(t, err)
	_, err = lab.BuildImage(t.Context(), images, "sarge", []string{"slurmctld", "slurmd"}, nil)
	require.ErrorContains(t, err, "bookworm, trixie, forky")
}

// After a kill -9 during a build, the next one waits for the mmdebstrap that still runs
// and does not use what it left.
func TestLongImageOfAKilledBuild(t *testing.T) {
	if dir := os.Getenv(imagesDir); dir != "" {
		_, err := lab.BuildImage(t.Context(), dir, "trixie", []string{"slurmctld", "slurmd"}, nil)
		require.NoError(t, err)
		return
	}
	images := filepath.Join(t.TempDir(), "images")
	runs := mmdebstrap(t, unpack+`touch "$root/half"
if [ "$`+imagesDir+`" ]; then kill -9 $PPID; sleep 0.5; fi`)
	cmd := exec.Command(os.Args[0], "-test.run=^TestLongImageOfAKilledBuild$")
	cmd.Env = append(os.Environ(), imagesDir+"="+images)
	require.ErrorContains(t, cmd.Run(), "killed")
	require.Equal(t, "begin", lines(t, runs))
	left, err := filepath.Glob(images + "/trixie-*")
	require.NoError(t, err)
	require.Len(t, left, 1)
	require.NoError(t, os.WriteFile(filepath.Join(left[0], "root", "broken"), nil, 0o644))
	_, err = lab.BuildImage(t.Context(), images, "trixie", []string{"slurmctld", "slurmd"}, nil)
	require.NoError(t, err)
	require.Equal(t, "begin end begin end", lines(t, runs))
	left, err = filepath.Glob(images + "/trixie-*")
	require.NoError(t, err)
	require.Len(t, left, 1)
	require.FileExists(t, filepath.Join(left[0], "image.json"))
	require.NoFileExists(t, filepath.Join(left[0], "root", "broken"))
}
