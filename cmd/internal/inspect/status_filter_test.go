package inspect

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Resources that need attention are first, and each part keeps its order.
func TestTroubleStandsFirst(t *testing.T) {
	all := []ResourceStatus{
		{Name: "a", Phase: "running", Ready: "True"}, {Name: "b", Phase: "running", Ready: "Unknown"}, {Name: "c", Phase: "stopped"},
		{Name: "d", Phase: "failed"}, {Name: "e", Phase: "running", Ready: "True", Stalled: true},
	}
	var order string
	for _, s := range troubleFirst(all) {
		order += s.Name
	}
	require.Equal(t, "bdeac", order)
}
