package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Time and memory are those of sbatch.
func TestFlagsOfJobsAreThoseOfSbatch(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"90": 90, "1:30": 2, "1:30:00": 90, "2-0": 2880, "1-2:30": 1590, "1-2:30:01": 1591,
		"0:00:01": 1} {
		var got int
		require.NoError(t, (&slurmTime{&got}).Set(text), text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "1h", "-1", "1:2:3:4", "1-", "a-1", "99999999999"} {
		require.Error(t, (&slurmTime{new(int)}).Set(text), text)
	}
	for text, want := range map[string]int{"512": 512, "512M": 512, "16G": 16384, "16g": 16384, "16GB": 16384, "1T": 1048576} {
		var got int
		require.NoError(t, (&slurmMemory{&got}).Set(text), text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "G", "1.5G", "-1", "1K"} {
		require.Error(t, (&slurmMemory{new(int)}).Set(text), text)
	}
}
