package github_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/webhooks/github/githubtest"
)

func TestApproversAreOfTheHead(t *testing.T) {
	t.Parallel()
	const approve, changes, comment = githubtest.Approved, githubtest.ChangesRequested, githubtest.Commented
	type stage struct {
		*bed
		pr *reconciler.PullRequest
	}
	say := func(login string, v githubtest.Verdict) func(stage) {
		return func(s stage) {
			_, err := s.srv.Review(s.pr.Number, login, v)
			require.NoError(s.t, err)
		}
	}
	dismissed := func(login string, v githubtest.Verdict) func(stage) {
		return func(s stage) {
			id, err := s.srv.Review(s.pr.Number, login, v)
			require.NoError(s.t, err)
			require.NoError(s.t, s.srv.DismissReview(id))
		}
	}
	// push adds to the branch, or puts another commit in its place.
	push := func(force bool) func(stage) {
		return func(s stage) {
			parent := s.pr.Head
			if force {
				parent = s.git("", "rev-parse", "main")
			}
			s.pr.Head = s.commit("change", parent, "change.yaml", fmt.Sprint("version ", force))
			require.NoError(s.t, s.srv.Sync())
		}
	}
	merge := func(m githubtest.Method) func(stage) {
		return func(s stage) {
			_, err := s.srv.Merge(s.pr.Number, m, "ana")
			require.NoError(s.t, err)
		}
	}
	for name, c := range map[string]struct {
		steps []func(stage)
		want  []string
	}{
		"nobody":                       {},
		"two, sorted":                  {[]func(stage){say("zoe", approve), say("ben", approve)}, []string{"ben", "zoe"}},
		"twice":                        {[]func(stage){say("ben", approve), say("ben", approve)}, []string{"ben"}},
		"a comment does not count":     {[]func(stage){say("ben", comment)}, nil},
		"a comment takes nothing back": {[]func(stage){say("ben", approve), say("ben", comment)}, []string{"ben"}},
		"taken back":                   {[]func(stage){say("ben", approve), say("ben", changes)}, nil},
		"convinced":                    {[]func(stage){say("ben", changes), say("ben", approve)}, []string{"ben"}},
		"another's request for changes does not count": {[]func(stage){say("ben", approve), say("zoe", changes)}, []string{"ben"}},
		"dismissed":                   {[]func(stage){dismissed("ben", approve)}, nil},
		"dismissed, one before stays": {[]func(stage){say("ben", approve), dismissed("ben", approve)}, nil},
		"dismissed and again":         {[]func(stage){dismissed("ben", approve), say("ben", approve)}, []string{"ben"}},
		"their request dismissed":     {[]func(stage){say("ben", approve), dismissed("ben", changes)}, nil},
		"pushed after":                {[]func(stage){say("ben", approve), push(false)}, nil},
		"replaced after":              {[]func(stage){say("ben", approve), push(true)}, nil},
		"pushed, and looked at again": {[]func(stage){say("ben", approve), push(false), say("zoe", approve)}, []string{"zoe"}},
		"a comment on the new head":   {[]func(stage){say("ben", approve), push(false), say("ben", comment)}, nil},
		"merged":                      {[]func(stage){say("ben", approve), merge(githubtest.Merge)}, []string{"ben"}},
		"squashed":                    {[]func(stage){say("ben", approve), merge(githubtest.Squash)}, []string{"ben"}},
		"pushed, then merged":         {[]func(stage){say("ben", approve), push(false), merge(githubtest.Rebase)}, nil},
		"after it was merged":         {[]func(stage){merge(githubtest.Merge), say("ben", approve)}, []string{"ben"}},
		"the author's own":            {[]func(stage){say("Zoe", approve), func(s stage) { s.pr.Author = "zoE" }}, nil},
		"a machine":                   {[]func(stage){say("helper[bot]", approve)}, nil},
		"an account that is gone": {[]func(stage){say("ben", approve), say("zoe", approve), func(s stage) { s.srv.DeleteUser("ben") }},
			[]string{"zoe"}},
		"of no head": {[]func(stage){say("ben", approve), func(s stage) { s.pr.Head = "" }}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, nil)
			b.t = t
			pr := b.pull("change")
			s := stage{b, &pr}
			for _, step := range c.steps {
				step(s)
				require.NoError(t, b.time.sleep(bg(), time.Second)) // GitHub counts seconds
			}
			got, err := b.forge(nil).Approvers(bg(), pr)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

// For each way of merging, each commit of main names its pull request and its last
// commit; a pushed commit names none.
func TestCommitsNameTheirPullRequest(t *testing.T) {
	t.Parallel()
	for _, m := range []githubtest.Method{githubtest.Merge, githubtest.Squash, githubtest.Rebase} {
		t.Run(string(m), func(t *testing.T) {
			b := newBed(t, nil)
			pr := b.pull("change")
			pr.Head = b.commit("change", pr.Head, "change.yaml", "two")
			b.commit("main", b.git("", "rev-parse", "main"), "README.md", "estate\n") // main moves on
			require.NoError(t, b.srv.Sync())
			merged, err := b.srv.Merge(pr.Number, m, "zoe")
			require.NoError(t, err)
			direct := b.commit("main", merged, "README.md", "pushed")
			require.NoError(t, b.srv.Sync())

			f, came := b.forge(nil), 0
			for _, c := range strings.Fields(b.git("", "rev-list", "--first-parent", "main")) {
				prs, err := f.PullsOf(bg(), c)
				require.NoError(t, err)
				for _, p := range prs {
					came++
					require.NotEqual(t, direct, c)
					require.Equal(t, merged, p.MergeCommit)
					require.Equal(t, pr.Head, p.Head)
					require.Equal(t, "ana", p.Author)
					require.Equal(t, "main", p.BaseBranch)
				}
			}
			require.Equal(t, map[githubtest.Method]int{githubtest.Merge: 1, githubtest.Squash: 1, githubtest.Rebase: 2}[m], came)
		})
	}
}
