//go:build long

package daemon

import "testing"

// Ten thousand deliveries.
func TestLongStormOfDeliveries(t *testing.T) {
	t.Parallel()
	storm(t, 10_000)
}
