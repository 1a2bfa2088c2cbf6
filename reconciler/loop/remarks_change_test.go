package loop

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Varying error messages from a tenant's repository do not change the notice.
func TestNoticesChangeSeldom(t *testing.T) {
	t.Parallel()
	refused := func(tenant, why string) string {
		return "tenant " + tenant + ": its repository was not composed, and its tenant tree stays as last composed: " + why
	}
	was := []string{refused("a", "it says 401"), refused("b", "x")}
	require.Equal(t, was, updateNotices(was, []string{refused("a", "it says 403"), refused("b", "x")}, false),
		"a change of numbers changes no notice")
	other := []string{refused("a", "host not found"), refused("b", "x")}
	require.Equal(t, other, updateNotices(was, other, false))
	require.Equal(t, was, updateNotices(was, other, true), "notices changed a moment ago")
	more := []string{refused("a", "host not found"), refused("b", "x"), refused("c", "x")}
	require.Equal(t, append(was[:2:2], more[2]), updateNotices(was, more, true))
	require.Equal(t, was[:1], updateNotices(was, other[:1], true))
}
