package sim

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each checker finds the fault that it is for, within a few schedules.
func TestSimulationFindsPlantedFaults(t *testing.T) {
	for plant, invariant := range map[string]string{
		"one node for all":  "I1",
		"event twice":       "I4",
		"event lost":        "I4",
		"unit lost":         "I5",
		"status goes back":  "I6",
		"epoch goes back":   "I6",
		"main goes back":    "I7",
		"stale epoch":       "I8",
		"no effect":         "I9",
		"unknown is absent": "I11",
		"audit lost":        "I12",
		"firing lost":       "I13",
		"hold forgotten":    "I15",
	} {
		t.Run(plant, func(t *testing.T) {
			t.Parallel()
			var all []string
			for seed := uint64(1); seed <= 20; seed++ {
				s, _ := play(t, options{seed: seed, isWide: true, asks: true, holds: true, plant: plant})
				if slices.ContainsFunc(s.violations, func(v string) bool { return strings.HasPrefix(v, invariant+":") }) {
					return
				}
				all = append(all, s.violations...)
			}
			require.Fail(t, "the fault was not found", "%s, found %q", invariant, all)
		})
	}
}
