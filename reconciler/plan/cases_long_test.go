//go:build long

package plan_test

import "testing"

const (
	// propertyCases is the number of random cases of each property.
	propertyCases = "400"
	// propertySeed is another in each run; a failure prints it.
	propertySeed = "0"
)

func TestLongPlansConvergeInAnyHistory(t *testing.T) { plansConverge(t) }

func TestLongMaxUnavailableHoldsInAnyHistory(t *testing.T) { maxUnavailableHolds(t) }
