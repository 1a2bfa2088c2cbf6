//go:build !long

package plan_test

// propertyCases is the number of random cases of each property.
const propertyCases = 25

// propertySeed is the same in each run: those of TestLong… explore.
func propertySeed() uint64 { return 1 }
