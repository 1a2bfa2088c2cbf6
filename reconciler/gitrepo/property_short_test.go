//go:build !long

package gitrepo_test

// propertyCases is the number of random cases of each property.
const propertyCases = 10

// propertySeed is the same in each run: those of TestLong… explore.
func propertySeed() uint64 { return 1 }
