package lab

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// A child of a host's first process has the same command line until it calls exec.
func TestOnlyTheFirstProcessOfANamespaceIsAHost(t *testing.T) {
	require.True(t, first(1))
	require.False(t, first(os.Getpid()))
	require.False(t, first(-1), "no such process")
}
