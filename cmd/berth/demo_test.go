package main

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// The story holds without hosts too, and tells what was refused and held.
func TestDemoInMemory(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "berth", "demo", "--memory", "--dir", t.TempDir()).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, said := range []string{
		"asks for 8 GPUs, at most 6 are allowed (tenants/physics/policy.yaml:6)",
		"held, unauthorised:",
		"M\ttenants/physics/projects/lattice/instances/train.yaml",
		"berth/in-force main: no difference",
		"whole: ",
		"All of it was verified.",
	} {
		require.Contains(t, string(out), said)
	}
}
