package explore_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/examples/explore"
)

// failing is a test that has failed; it keeps its log.
type failing struct {
	testing.TB
	log      []string
	cleanups []func()
}

func (f *failing) Logf(format string, args ...any) {
	f.log = append(f.log, fmt.Sprintf(format, args...))
}
func (f *failing) Cleanup(fn func()) { f.cleanups = append(f.cleanups, fn) }
func (f *failing) Failed() bool      { return true }
func (f *failing) Name() string      { return "TestLongX" }

func TestFailureNamesTheCommandThatRepeatsIt(t *testing.T) {
	t.Setenv("BERTH_SEED", "7")
	t.Setenv("BERTH_PART", "yes")
	for target, command := range map[string]string{"": "make test-long RUN=TestLongX", "test-long": "make test-long RUN=TestLongX",
		"test-slurm": "make test-slurm"} {
		t.Setenv("BERTH_TARGET", target)
		f := &failing{TB: t}
		require.Equal(t, uint64(7), explore.Seed(f))
		f.cleanups[0]()
		require.Equal(t, []string{"the seed is 7", "to repeat it: " + command + " SEED=7 PART=yes"}, f.log)
	}
}

func TestSeedDrawsThePart(t *testing.T) {
	cases := []string{"a", "b", "c", "d", "e", "f"}
	t.Setenv("BERTH_PART", "")
	require.Equal(t, cases, explore.Draw(t, 2, cases))
	require.Equal(t, 100, explore.Count(5, 100))
	t.Setenv("BERTH_PART", "yes")
	require.Equal(t, 5, explore.Count(5, 100))
	drawn := map[string]bool{}
	for seed := range 40 {
		t.Setenv("BERTH_SEED", fmt.Sprint(seed))
		part := explore.Draw(t, 2, cases)
		require.Len(t, part, 2)
		require.Less(t, part[0], part[1], "the order stays")
		require.Equal(t, part, explore.Draw(t, 2, cases), "a seed repeats its cases")
		drawn[part[0]], drawn[part[1]] = true, true
	}
	require.Len(t, drawn, len(cases), "each case is drawn by some seed")
}

func TestSeedIsTheDayOtherwise(t *testing.T) {
	t.Setenv("BERTH_SEED", "")
	require.Greater(t, explore.Seed(t), uint64(20260000))
}
