package slurm

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/runtimes"
)

// More runs than a host prints at once come in parts, each run once, also one that two parts have.
func TestUsageComesInParts(t *testing.T) {
	c := newCluster(t)
	ends := []int64{1600000000, 1600000005, 1650000000, 1795000000}
	calls := 0
	host := c.hosts.host("ctl")
	host.before = func(op runtimes.Op) error {
		if op.Run != nil && op.Run.Program == "sacct" {
			calls++
			if from, to := window(t, op.Run.Args); between(ends, from, to) > 1 {
				return &runtimes.OpError{Host: "ctl", Op: "run sacct", Code: "output", Message: "printed more than 4 MiB"}
			}
		}
		return nil
	}
	host.answer = func(run *runtimes.Run) (string, int) {
		from, to := window(t, run.Args)
		out := "Cluster|JobIDRaw|Submit|Start|End|State|Account|User|AllocTRES|ElapsedRaw|NodeList\n"
		for i, end := range ends {
			if end >= from && end <= to {
				out += fmt.Sprintf("c|%d|%d|%d|%d|COMPLETED|physics.lhc|eve|cpu=1,mem=2M|30|w1\n", i+1, end-60, end-30, end)
			}
		}
		return out, 0
	}
	ended, active, err := c.on(t).associations.usage(t.Context(), "physics.lhc")
	require.NoError(t, err)
	require.Zero(t, active)
	require.Len(t, ended, len(ends))
	require.Less(t, calls, 200)
}

func window(t *testing.T, args []string) (from, to int64) {
	t.Helper()
	for _, a := range args {
		for option, into := range map[string]*int64{"--starttime=uts": &from, "--endtime=uts": &to} {
			if text, ok := strings.CutPrefix(a, option); ok {
				var err error
				*into, err = strconv.ParseInt(text, 10, 64)
				require.NoError(t, err)
			}
		}
	}
	return from, to
}

func between(all []int64, from, to int64) (n int) {
	for _, at := range all {
		if at >= from && at <= to {
			n++
		}
	}
	return n
}
