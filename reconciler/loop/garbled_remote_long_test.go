//go:build long

package loop_test

import (
	"fmt"
	"testing"

	"berth/examples/explore"
)

func TestLongGarbledRemoteHeals(t *testing.T) {
	seed := explore.Seed(t)
	for i := range explore.Count(1, 4) {
		t.Run(fmt.Sprint(i), func(t *testing.T) { garbledRemoteHeals(t, seed+uint64(i), 12, 4) })
	}
	t.Run("many changes", func(t *testing.T) { garbledRemoteHeals(t, seed, explore.Count(20, 180), 15) })
}
