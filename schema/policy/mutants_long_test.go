//go:build long

package policy_test

import "testing"

func TestLongMutants(t *testing.T) { killMutants(t, mutants()) }
