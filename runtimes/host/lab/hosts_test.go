package lab

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// A program that a host's first process has just forked looks like it for a
// moment: same command line, but it is gone in the next.
func TestOnlyTheFirstProcessOfANamespaceIsAHost(t *testing.T) {
	require.True(t, first(1))
	require.False(t, first(os.Getpid()))
	require.False(t, first(-1), "no such process")
}
