//go:build long

package authority_test

import "testing"

func TestLongMutantsAreKilled(t *testing.T) { killMutants(t, mutants()) }
