package decide_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// An unreadable pause stops every action. Only a user with the permission lifts it;
// overwriting or deleting it without the permission has no effect.
func TestPauseIsLiftedWithPermissionOnly(t *testing.T) {
	const file = "platform/pause.yaml"
	brake := func() *story {
		s := tell(t, nil)
		s.commits("otto", map[string]string{file: "garbage: 1\n"})
		require.Contains(t, s.together().Paused(), "cannot be read")
		return s
	}
	for name, then := range map[string]string{
		"other garbage": "garbage: 2\n",
		"a suspended":   doc("Pause", "pause", "suspend: true\nspec:\n  reason: none\n"),
		"gone":          "",
	} {
		t.Run(name, func(t *testing.T) {
			s := brake()
			s.commits("vic", map[string]string{file: then})
			require.NotEmpty(t, s.together().Paused())
			s.commits("mel", map[string]string{"README.md": "x"})
			require.NotEmpty(t, s.together().Paused(), "later")
			s.commits("otto", map[string]string{file: doc("Pause", "pause", "spec:\n  reason: maintenance\n")})
			require.Equal(t, "maintenance", s.together().Paused())
			s.commits("vic", map[string]string{file: "garbage: 3\n"})
			require.Equal(t, "maintenance", s.together().Paused())
			s.commits("otto", map[string]string{file: ""})
			require.Empty(t, s.together().Paused())
		})
	}
	s := brake()
	s.commits("otto", map[string]string{file: ""})
	require.Empty(t, s.together().Paused(), "deleted by a user with the permission")

	s = tell(t, nil)
	s.commits("vic", map[string]string{file: "garbage: 1\n"})
	require.Empty(t, s.together().Paused(), "created by a user without the permission")
}
