package schema_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
)

func TestValidLogin(t *testing.T) {
	for _, login := range []string{"anna", "Anna-B", "berth-lab[bot]", "2much", strings.Repeat("a", 39)} {
		require.True(t, schema.ValidLogin(login), login)
	}
	for _, login := range []string{"", "@anna", "anna@example.org", "Anna Berg", "-anna", "anna-", "anna_b", "[bot]",
		strings.Repeat("a", 40)} {
		require.False(t, schema.ValidLogin(login), login)
	}
}
