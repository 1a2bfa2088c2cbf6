//go:build long

package gitrepo_test

import (
	"testing"

	"berth/examples/explore"
)

// propertyCases is the number of random cases of each property.
const propertyCases = 400

// propertySeed is that of the run.
func propertySeed() uint64 { return explore.MustSeedOfRun() }

func TestLongRandomChangesMatchGit(t *testing.T) { randomChangesMatchGit(t) }

func TestLongRandomStatusBatchesMatchModel(t *testing.T) { randomStatusBatchesMatchModel(t) }

func TestLongReadInForce(t *testing.T) { readInForce(t) }
