package plan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
)

// A member gets the GPUs that it requested and policy allowed, not all of the node.
func TestTakeGPUs(t *testing.T) {
	four := schema.GPU{Type: "a100", Count: 4, Devices: "/dev/nvidia[0-3]"}
	require.Equal(t, schema.GPU{Type: "a100", Count: 1, Devices: "/dev/nvidia0"}, take(four, 1))
	require.Equal(t, schema.GPU{Type: "a100", Count: 2, Devices: "/dev/nvidia[0-1]"}, take(four, 2))
	require.Equal(t, four, take(four, 4))
	require.Equal(t, four, take(four, 9))
	require.Equal(t, schema.GPU{Type: "h100", Count: 2, Devices: "/dev/nvidia[4-5]"},
		take(schema.GPU{Type: "h100", Count: 4, Devices: "/dev/nvidia[4-7]"}, 2))
	one := schema.GPU{Type: "a100", Count: 1, Devices: "/dev/nvidia0"}
	require.Equal(t, one, take(one, 1))
}
