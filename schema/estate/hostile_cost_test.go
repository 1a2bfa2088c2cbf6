package estate_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// cost is the resource use of the process that loaded the corpus.
type cost struct {
	Cases  int
	Worst  time.Duration // processor time of the slowest case
	Name   string
	Memory int // KiB, maximum resident size
}

const asChild = "BERTH_TEST_LOAD_THE_CORPUS"

// TestHostileCorpusIsCheap: no case takes more than a second of processor time,
// and all of them together never more than 512 MiB. A process of its own loads
// them, as one can be measured and, where a case has no end, be stopped.
func TestHostileCorpusIsCheap(t *testing.T) {
	if os.Getenv(asChild) != "" {
		loadCorpus(t)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestHostileCorpusIsCheap$")
	out := t.TempDir() + "/cost"
	cmd.Env = append(os.Environ(), asChild+"="+out, "GOMEMLIMIT=400MiB")
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", said)
	data, err := os.ReadFile(out)
	require.NoError(t, err)
	var c cost
	require.NoError(t, json.Unmarshal(data, &c))
	t.Logf("%d cases, the dearest %s (%s), %d MiB at most", c.Cases, c.Worst, c.Name, c.Memory>>10)
	require.GreaterOrEqual(t, c.Cases, 300)
	slower := 1
	if raced() {
		slower = 20 // factor for the race detector
	}
	require.LessOrEqual(t, c.Worst, time.Duration(slower)*time.Second, c.Name)
	require.LessOrEqual(t, c.Memory, slower*512<<10)
}

// raced reports whether the race detector is built in.
func raced() bool {
	info, _ := debug.ReadBuildInfo()
	return info != nil && slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "-race" && s.Value == "true" })
}

func loadCorpus(t *testing.T) {
	const seconds = 600 // for all of them, with the race detector
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_CPU, &syscall.Rlimit{Cur: seconds, Max: seconds}))
	usage := func() (cpu time.Duration, kib int) {
		var u syscall.Rusage
		require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano()), int(u.Maxrss)
	}
	loader := newLoader(t)
	_, err := loader.Load(context.Background(), hostile{files: hostileBase(t)}.snapshot())
	require.NoError(t, err)
	var c cost
	for _, h := range corpus(t) {
		before, _ := usage()
		_, err := loader.Load(context.Background(), h.snapshot())
		require.NoError(t, err)
		after, kib := usage()
		c.Cases, c.Memory = c.Cases+1, max(c.Memory, kib)
		if after-before > c.Worst {
			c.Worst, c.Name = after-before, h.class+"/"+h.name
		}
	}
	data, err := json.Marshal(c)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(os.Getenv(asChild), data, 0o600))
}
