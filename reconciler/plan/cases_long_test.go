//go:build long

package plan_test

import (
	"testing"

	"berth/examples/explore"
)

// propertyCases is the number of random cases of each property.
const propertyCases = 400

// propertySeed is that of the run.
func propertySeed() uint64 { return explore.MustSeedOfRun() }

func TestLongPlansConvergeInAnyHistory(t *testing.T) { plansConverge(t) }

func TestLongMaxUnavailableHoldsInAnyHistory(t *testing.T) { maxUnavailableHolds(t) }
