//go:build !long

package estate_test

const (
	// propertyCases is the number of random cases of each property.
	propertyCases = "20"
	// propertySeed is the same in each run: those of TestLong… explore.
	propertySeed = "1"
)
