//go:build long

package plan

import "testing"

func TestLongPlacerMatchesPlace(t *testing.T) { placerMatchesPlace(t, 5000) }
