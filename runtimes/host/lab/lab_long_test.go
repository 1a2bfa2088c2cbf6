//go:build long

package lab_test

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/runtimes/host/hosttest"
	"berth/runtimes/host/lab"
)

// killedDir is the environment variable with the directory of the lab that
// TestLongUpOfAKilledProcess starts in a process of its own.
const killedDir = "BERTH_TEST_LAB_DIR"

// After a kill -9 of Up at any time, the next Up and Down leave nothing.
func TestLongUpOfAKilledProcess(t *testing.T) {
	hosttest.NeedLab(t)
	c := config(t)
	if dir := os.Getenv(killedDir); dir != "" {
		c.Dir = dir
		_, err := lab.Up(t.Context(), c)
		require.NoError(t, err)
		return
	}
	before := machine(t)
	for _, after := range []time.Duration{20, 60, 100, 150, 200, 300} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestLongUpOfAKilledProcess$")
		cmd.Env = append(os.Environ(), killedDir+"="+c.Dir)
		require.NoError(t, cmd.Start())
		time.Sleep(after * time.Millisecond) // the moment of the kill
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait() // killed
		l, err := lab.Up(t.Context(), c)
		require.NoError(t, err)
		require.NoError(t, l.Down(t.Context()))
		require.Empty(t, links(t, l.Bridge))
		require.Empty(t, leftovers(t, l.Bridge))
		require.Empty(t, hosttest.Processes(t, c.Dir))
	}
	require.Equal(t, before, machine(t))
}
