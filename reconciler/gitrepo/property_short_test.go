//go:build !long

package gitrepo_test

// propertyCases is the number of random cases of each property.
const propertyCases = "10"
