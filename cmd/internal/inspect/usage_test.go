package inspect

import (
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
)

// A day is final once its cluster has closed it, or once it is over and its unit is gone, also where another
// unit has its name since. A month is closed once its last day is final.
func TestDaysOfAUnitAreFinal(t *testing.T) {
	f := finalDays{
		closed: map[string]string{"c": "2026-11-25"}, today: "2026-12-01",
		begun: map[string]string{"runs": "2026-10-01", "again": "2026-12-01"},
	}
	for _, c := range []struct {
		cluster, unit, day string
		want               bool
	}{
		{"c", "runs", "2026-11-25", true}, {"c", "runs", "2026-11-26", false},
		{"d", "gone", "2026-11-30", true}, {"d", "gone", "2026-12-01", false},
		{"d", "again", "2026-11-30", true}, {"d", "again", "2026-12-01", false},
	} {
		require.Equal(t, c.want, f.has(c.cluster, c.unit, c.day), "%v", c)
	}
	f.unread = true
	require.False(t, f.has("d", "gone", "2026-11-30"), "its status may be the file that cannot be read")
	f.unread = false
	require.False(t, f.months("")("c", "runs", "2026-11"))
	require.True(t, f.months("2026-11-25")("c", "runs", "2026-11"))
	require.True(t, f.months("")("d", "gone", "2026-11"))
	require.False(t, f.months("")("d", "gone", "2026-12"))
}

// Corrections of earlier months may exceed what a month used.
func TestNegativeAmountsHaveASign(t *testing.T) {
	require.Equal(t, []string{"-1.5000", "-0.0002", "1.5000"}, []string{hours(-5400, 1), hours(-1, 1), hours(5400, 1)})
	require.Equal(t, "-0.500000 EUR", money(big.NewInt(-500_000), "EUR"))
}
