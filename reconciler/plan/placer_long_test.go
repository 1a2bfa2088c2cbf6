//go:build long

package plan

import (
	"testing"

	"berth/examples/explore"
)

func TestLongPlacerMatchesPlace(t *testing.T) {
	placerMatchesPlace(t, explore.Seed(t), uint64(explore.Count(500, 5000)))
}
