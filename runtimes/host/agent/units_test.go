package agent

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	"berth/runtimes/slurm/profile"
)

var update = flag.Bool("update", false, "rewrite the expected files of testdata")

// The unit of each service of Slurm.
func TestUnitsOfSlurm(t *testing.T) {
	const name = "testdata/units.txtar"
	got := &txtar.Archive{Comment: []byte("The units of one control stack and of a worker, as rendered.\n")}
	for _, one := range []struct {
		name, unit string
		params     map[string]string
	}{
		{profile.Munged, "physics", nil}, {profile.MariaDB, "", nil}, {profile.Slurmdbd, "physics", nil},
		{profile.Slurmctld, "physics", nil},
		{profile.MungedWorker, "physics", nil},
		{profile.Slurmd, "physics", map[string]string{
			profile.ParamServer: "10.77.0.10:20001", profile.ParamNode: "gpu-1", profile.ParamDevices: "/dev/nvidia0,/dev/nvidia1",
		}},
	} {
		spec, err := profile.Profile().Services[one.name](one.unit, one.params)
		require.NoError(t, err)
		s := service{name: one.name, unit: one.unit, spec: spec}
		file, err := systemd{}.file(s)
		require.NoError(t, err)
		got.Files = append(got.Files, txtar.File{Name: file, Data: []byte(unitText(s))})
		for _, after := range spec.Unit.After {
			require.Contains(t, []string{profile.Munged, profile.MungedWorker, profile.MariaDB, profile.Slurmdbd}, after.Name)
		}
		s.timeout += 7
		require.Equal(t, string(got.Files[len(got.Files)-1].Data), unitText(s), "independent of the request")
	}
	if *update {
		require.NoError(t, os.WriteFile(name, txtar.Format(got), 0o644))
	}
	want, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, string(want), string(txtar.Format(got)))
}
