//go:build !long

package plan_test

const (
	// propertyCases is the number of random cases of each property.
	propertyCases = "25"
	// propertySeed is the same in each run: those of TestLong… explore.
	propertySeed = "1"
)
