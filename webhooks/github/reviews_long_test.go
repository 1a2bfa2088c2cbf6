//go:build long

package github_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/webhooks/github/githubtest"
)

// Reviews of the same second count in their order. A repeated read is free; a
// failed read is an error.
func TestLongApproversOverManyPages(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	pr := b.pull("change")
	var want []string
	for i := range 130 {
		login := fmt.Sprintf("person-%d", i)
		verdicts := []githubtest.Verdict{githubtest.Approved, githubtest.ChangesRequested}
		if i%3 == 0 {
			slices.Reverse(verdicts)
			want = append(want, login)
		}
		for _, v := range verdicts {
			_, err := b.srv.Review(pr.Number, login, v)
			require.NoError(t, err)
		}
	}
	slices.Sort(want)
	f := b.forge(nil)
	got, err := f.Approvers(bg(), pr)
	require.NoError(t, err)
	require.Equal(t, want, got)
	before := b.remaining()
	_, err = f.Approvers(bg(), pr)
	require.NoError(t, err)
	require.Equal(t, before-1, b.remaining(), "looking again costs nothing, but the looking here")

	const opReviews = "GET " + base + "/pulls/{pull_number}/reviews"
	b.srv.Inject(githubtest.Fault{Op: opReviews, Status: 404, Message: "Not Found", Times: 1})
	_, err = f.Approvers(bg(), pr)
	require.ErrorContains(t, err, "list the reviews of pull request 1")
	_, err = b.srv.Review(pr.Number, pr.Author, githubtest.Approved)
	require.Error(t, err, "GitHub has nobody approve their own")
}
