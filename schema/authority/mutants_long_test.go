//go:build long

package authority_test

import (
	"maps"
	"slices"
	"testing"

	"berth/examples/explore"
)

func TestLongMutantsAreKilled(t *testing.T) {
	all, drawn := mutants(), map[string]mutant{}
	for _, name := range explore.Draw(t, 2, slices.Sorted(maps.Keys(all))) {
		drawn[name] = all[name]
	}
	killMutants(t, drawn)
}
