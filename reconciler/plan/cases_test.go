package plan_test

import (
	"os"
	"testing"

	"berth/examples/explore"
)

// TestMain sets the number of random cases of each property, and their seed.
func TestMain(m *testing.M) { os.Exit(explore.RunProperties(m, propertyCases, propertySeed())) }
