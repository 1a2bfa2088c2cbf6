package sim

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/examples/explore"
)

const (
	// schedules is how many TestSimulatedSchedules plays unless BERTH_SCHEDULES says otherwise, as make sim does: about 20 seconds of
	// CPU time.
	schedules = 1000
	// dayApart is between the first seeds of two days, so that each day plays other schedules.
	dayApart = 1_000_000
)

// played sums up what schedules did.
type played struct {
	mu                        sync.Mutex
	schedules, steps, crashes uint64
	virtual                   time.Duration
	faults                    map[string]int
}

func (p *played) add(s *simulation, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.schedules++
	p.steps += s.counts["step"]
	p.crashes += s.counts["crash"]
	p.virtual += took
	for kind, n := range s.faults {
		p.faults[kind] += n
	}
}

// Whatever is killed, lost, doubled or late, the invariants hold after each step, and once it ends the world becomes what
// main says. The first seed is BERTH_SEED; without it, it follows from the date.
func TestSimulatedSchedules(t *testing.T) {
	t.Parallel()
	seed, err := explore.SeedOfRun()
	require.NoError(t, err)
	if os.Getenv("BERTH_SEED") == "" {
		seed *= dayApart
	}
	count := uint64(schedules)
	if text := os.Getenv("BERTH_SCHEDULES"); text != "" {
		count, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	began, sum := time.Now(), &played{faults: map[string]int{}}
	t.Run("all", func(t *testing.T) {
		const shards = 2
		for shard := range uint64(shards) {
			t.Run(fmt.Sprint(shard), func(t *testing.T) {
				t.Parallel()
				for n := shard; n < count && !t.Failed(); n += shards {
					s, virtual := play(t, options{seed: seed + n, isWide: true, asks: true, holds: true})
					sum.add(s, virtual)
					if len(s.violations) > 0 {
						t.Errorf("to replay it: make sim SEED=%d N=1\n%s\n%s", s.seed, strings.Join(s.violations, "\n"),
							strings.Join(s.trace[max(0, len(s.trace)-300):], "\n"))
					}
				}
			})
		}
	})
	t.Logf("seeds %d to %d: %d schedules, %d steps, %d crashes, %s of virtual time in %s", seed, seed+count-1, sum.schedules, sum.steps,
		sum.crashes, sum.virtual.Round(time.Hour), time.Since(began).Round(100*time.Millisecond))
	for _, kind := range slices.Sorted(maps.Keys(sum.faults)) {
		t.Logf("%8d %s", sum.faults[kind], kind)
	}
}
