package cluster

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/runtimes/slurm/profile"
	"berth/schema/load"
)

// A field takes exactly the numbers that the table, which is a page of the documentation, has for
// its parameter.
func TestFieldsHaveTheBoundsOfTheirParameters(t *testing.T) {
	definition, err := load.NewSettings(configCUE, "#Parameters")
	require.NoError(t, err)
	isRefused := func(field string, n int) bool {
		keys := strings.Split(field, ".")
		value := strconv.Itoa(n)
		for i := len(keys) - 1; i >= 0; i-- {
			value = "{" + keys[i] + ": " + value + "}"
		}
		for _, f := range definition.Read("parameters.yaml", []byte(value)).Findings {
			if f.Path == field {
				return true
			}
		}
		return false
	}
	tried := 0
	for _, p := range (profile.Stack{}).SlurmConf() {
		if !p.Allowed.IsNumber() || p.Field == "" || p.Field == "jobs.gpu_defaults" { // which takes no number
			continue
		}
		tried++
		for _, n := range []int{p.Allowed.Low, p.Allowed.High} {
			require.False(t, isRefused(p.Field, n), "%s: %d, which slurm-options.md lists for %s", p.Field, n, p.Name)
		}
		for _, n := range []int{p.Allowed.Low - 1, p.Allowed.High + 1} {
			require.True(t, isRefused(p.Field, n), "%s: %d, which slurm-options.md does not list for %s", p.Field, n, p.Name)
		}
	}
	require.Greater(t, tried, 20)
}

// slurmctld takes weights of 32 bits: it ends with an error for a file that has a higher one.
func TestWeightsOfPriorityHave32Bits(t *testing.T) {
	for _, name := range []string{"Age", "Fairshare", "JobSize", "Partition", "QOS"} {
		require.True(t, profile.AllowsSlurmConf("PriorityWeight"+name, "4294967295"), name)
		require.False(t, profile.AllowsSlurmConf("PriorityWeight"+name, "4294967296"), name)
	}
	set := &Config{Priority: &priority{Weights: priorityWeights{Age: profile.MaxWeight, QOS: profile.MaxWeight}}}
	require.Equal(t, profile.MaxWeight, set.weightOfGuarantee())
}
