//go:build long

package gitrepo_test

import "testing"

// propertyCases is the number of random cases of each property.
const propertyCases = "400"

func TestLongRandomChangesMatchGit(t *testing.T) { randomChangesMatchGit(t) }

func TestLongRandomStatusBatchesMatchModel(t *testing.T) { randomStatusBatchesMatchModel(t) }

func TestLongReadInForce(t *testing.T) { readInForce(t) }
