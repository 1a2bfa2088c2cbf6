package provenance_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/provenance"
)

// claims is a forge that counts commits to pull requests.
type claims struct {
	reconciler.Forge
	of map[string][]reconciler.PullRequest
}

func (c claims) PullsOf(_ context.Context, commit string) ([]reconciler.PullRequest, error) {
	return c.of[commit], nil
}

// A pull request brought a commit of main only if the commit is what a merge of it
// makes, in each way of merging. Anything else that is pushed in its name is not.
func TestMergedByTakesOnlyWhatAMergeMakes(t *testing.T) {
	t.Parallel()
	const ours, other = "tenants/physics/a.yaml", "tenants/biology/b.yaml"
	set := func(path, text string) map[string]string { return map[string]string{path: text} }
	both := map[string]string{ours: "new\n", other: "stolen\n"}
	for name, c := range map[string]struct {
		// push puts commits on main and says by which the forge thinks it merged;
		// base and head are main and the pull request, of two commits.
		push func(s *gittest.Server, t *testing.T, base, mid, head string) (mergeCommit string)
		of   func(*reconciler.PullRequest)
		want []bool // of main's commits since base, oldest first
	}{
		"merge": {push: func(s *gittest.Server, t *testing.T, base, mid, head string) string {
			return s.MustCommit(t, "main", gittest.Commit{Message: "M", Merge: head, Files: set(ours, "new\n")})
		}, want: []bool{true}},
		"squash": {push: func(s *gittest.Server, t *testing.T, base, mid, head string) string {
			return s.MustCommit(t, "main", gittest.Commit{Message: "S", Files: set(ours, "new\n")})
		}, want: []bool{true}},
		"rebase": {push: func(s *gittest.Server, t *testing.T, base, mid, head string) string {
			s.MustCommit(t, "main", gittest.Commit{Message: "R1", Files: set(ours, "half\n")})
			return s.MustCommit(t, "main", gittest.Commit{Message: "R2", Files: set(ours, "new\n")})
		}, want: []bool{true, true}},
		"its commits pushed to main": {push: func(s *gittest.Server, t *testing.T, base, mid, head string) string {
			require.NoError(t, s.SetRef("refs/heads/main", head))
			return head
		}, want: []bool{true, true}},
		"a squash, then a push": {push: func(s *gittest.Server, t *testing.T, base, mid, head string) string {
			m := s.MustCommit(t, "main", gittest.Commit{Message: "S", Files: set(ours, "new\n")})
			s.MustCommit(t, "main", gittest.Commit{Message: "P", Files: set(other, "stolen\n")})
			return m
		}, want: []bool{true, false}},
		"a push that the forge counts to it, then a squash": {push: func(s *gittest.Server, t *testing.T, base, mid, head string) string {
			s.MustCommit(t, "main", gittest.Commit{Message: "P", Files: set(other, "stolen\n")})
			return s.MustCommit(t, "main", gittest.Commit{Message: "S", Files: set(ours, "new\n")})
		}, want: []bool{false, true}},
		"a merge with more in it": {push: func(s *gittest.Server, t *testing.T, base, mid, head string) string {
			return s.MustCommit(t, "main", gittest.Commit{Message: "M", Merge: head, Files: both})
		}, want: []bool{false}},
		"a squash with more in it": {push: func(s *gittest.Server, t *testing.T, base, mid, head string) string {
			return s.MustCommit(t, "main", gittest.Commit{Message: "S", Files: both})
		}, want: []bool{false}},
		"a squash with less in it": {push: func(s *gittest.Server, t *testing.T, base, mid, head string) string {
			return s.MustCommit(t, "main", gittest.Commit{Message: "S", Files: set(ours, "half\n")})
		}, want: []bool{false}},
		"only one of its commits pushed": {push: func(s *gittest.Server, t *testing.T, base, mid, head string) string {
			require.NoError(t, s.SetRef("refs/heads/main", mid))
			return head
		}, want: []bool{false}},
		"to another branch": {push: func(s *gittest.Server, t *testing.T, base, mid, head string) string {
			return s.MustCommit(t, "main", gittest.Commit{Message: "S", Files: set(ours, "new\n")})
		}, of: func(p *reconciler.PullRequest) { p.BaseBranch = "release" }, want: []bool{false}},
		"not merged": {push: func(s *gittest.Server, t *testing.T, base, mid, head string) string {
			return s.MustCommit(t, "main", gittest.Commit{Message: "S", Files: set(ours, "new\n")})
		}, of: func(p *reconciler.PullRequest) { p.Merged = false }, want: []bool{false}},
		"its head is another by now": {push: func(s *gittest.Server, t *testing.T, base, mid, head string) string {
			return s.MustCommit(t, "main", gittest.Commit{Message: "S", Files: set(ours, "new\n")})
		}, of: func(p *reconciler.PullRequest) { p.Head = "0123456789012345678901234567890123456789" }, want: []bool{false}},
	} {
		t.Run(name, func(t *testing.T) {
			s := gittest.New(t, map[string]string{ours: "old\n", other: "theirs\n"})
			base := s.Tip("main")
			mid := s.MustCommit(t, "change", gittest.Commit{Message: "C1", Files: set(ours, "half\n")})
			head := s.MustCommit(t, "change", gittest.Commit{Message: "C2", Files: set(ours, "new\n")})
			require.NoError(t, s.SetPull(7, head))
			pr := reconciler.PullRequest{Number: 7, Author: "ana", Head: head, BaseBranch: "main", Merged: true}
			pr.MergeCommit = c.push(s, t, base, mid, head)
			if c.of != nil {
				c.of(&pr)
			}
			repo, err := gitrepo.Open(t.Context(), gitrepo.Options{URL: s.URL, Dir: t.TempDir(), PullRefs: reconciler.PullRefs{Head: gittest.PullRef}})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, repo.Close()) })
			tips, err := repo.Fetch(t.Context())
			require.NoError(t, err)
			commits, err := repo.Log(t.Context(), base, tips.Main, 100)
			require.NoError(t, err)
			slices.Reverse(commits)
			// The most that a forge could be made to say: all of them are of it.
			forge := claims{of: map[string][]reconciler.PullRequest{}}
			for _, c := range commits {
				forge.of[c.ID] = []reconciler.PullRequest{pr}
			}
			var got []bool
			h := provenance.NewHistory(repo, forge, "main", commits)
			for i := range commits {
				p, ok, err := h.MergedBy(t.Context(), i)
				require.NoError(t, err)
				require.True(t, !ok || p.Author == "ana")
				got = append(got, ok)
			}
			require.Equal(t, c.want, got)
		})
	}
}
