//go:build long

package githubtest_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/webhooks/github/githubtest"
)

// GitHub keeps a thousand check runs of a name in a suite, and accepts a thousand
// statuses for a commit and context.
func TestLongThousandCheckRunsAndStatuses(t *testing.T) {
	t.Parallel()
	const much = 1_000_000
	s, w := start(t, func(o *githubtest.Options) {
		o.Limits = githubtest.Limits{PerHour: much, ContentPerMinute: much, ContentPerHour: much, PointsPerMinute: much}
	})
	head := w.commit("b", "a.yaml", "a: 1\n")
	for i := range 1002 {
		require.Equal(t, 201, ask(t, s, "POST", "/check-runs",
			`{"name":"berth","head_sha":"`+head+`","external_id":"`+strconv.Itoa(i)+`"}`).StatusCode)
		want := 201
		if i >= 1000 {
			want = 422
		}
		require.Equal(t, want, ask(t, s, "POST", "/statuses/"+head, `{"state":"success","context":"berth"}`).StatusCode, i)
	}
	runs := s.Checks(head)
	require.Len(t, runs, 1000)
	require.Equal(t, "2", runs[0].ExternalID, "the oldest went")
}
