//go:build long

package policy_test

import (
	"testing"

	"berth/examples/explore"
)

func TestLongMutants(t *testing.T) { killMutants(t, explore.Draw(t, 2, mutants())) }
