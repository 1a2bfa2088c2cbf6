//go:build long

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

	"github.com/stretchr/testify/require"
)

// cost is the resource use of the process that loaded the corpus.
type cost struct {
	Cases  int
	Worst  uint64 // bytes that the dearest case allocates, freed ones included
	Name   string
	Memory int // KiB, maximum resident size
}

const asChild = "BERTH_TEST_LOAD_THE_CORPUS"

// raced reports whether the race detector is built in.
func raced() bool {
	info, _ := debug.ReadBuildInfo()
	return info != nil && slices.ContainsFunc(info.Settings,
		func(s debug.BuildSetting) bool { return s.Key == "-race" && s.Value == "true" })
}

func loadCorpus(t *testing.T) {
	const seconds = 600 // for all of them, with the race detector
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_CPU, &syscall.Rlimit{Cur: seconds, Max: seconds}))
	loader := newLoader(t)
	_, err := loader.Load(context.Background(), hostile{files: hostileBase(t)}.snapshot())
	require.NoError(t, err)
	var c cost
	for _, h := range corpus(t) {
		before := allocated()
		_, err := loader.Load(context.Background(), h.snapshot())
		require.NoError(t, err)
		c.Cases++
		if used := allocated() - before; used > c.Worst {
			c.Worst, c.Name = used, h.class+"/"+h.name
		}
	}
	c.Memory = int(usage(t).Maxrss)
	data, err := json.Marshal(c)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(os.Getenv(asChild), data, 0o600))
}

// TestLongHostileCorpusIsCheap: no case allocates more than 512 MiB in all, which is less than a
// second's work (BenchmarkHostileCorpus), and all of them together never take more than
// 512 MiB. A process of its own loads them, as one can be measured and, where a case has no
// end, be stopped.
func TestLongHostileCorpusIsCheap(t *testing.T) {
	if os.Getenv(asChild) != "" {
		loadCorpus(t)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestLongHostileCorpusIsCheap$")
	out := t.TempDir() + "/cost"
	cmd.Env = append(os.Environ(), asChild+"="+out, "GOMEMLIMIT=400MiB")
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", said)
	data, err := os.ReadFile(out)
	require.NoError(t, err)
	var c cost
	require.NoError(t, json.Unmarshal(data, &c))
	t.Logf("%d cases, the dearest allocates %d MiB (%s), %d MiB at most", c.Cases, c.Worst>>20, c.Name, c.Memory>>10)
	require.GreaterOrEqual(t, c.Cases, 300)
	more := 1
	if raced() {
		more = 20 // factor for the race detector
	}
	require.LessOrEqual(t, c.Worst, uint64(more*512<<20), c.Name)
	require.LessOrEqual(t, c.Memory, more*512<<10)
}
