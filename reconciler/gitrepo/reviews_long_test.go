//go:build long

package gitrepo_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
	"berth/schema"
)

// reviewed returns the review of a pull request that changes the given number of
// units, each of maximum length.
func reviewed(pull, units int) plan.Review {
	long := strings.Repeat("n", 40)
	all := make([]plan.ReviewedUnit, units)
	for i := range all {
		name := fmt.Sprintf("%05d%s", i, long[5:])
		all[i] = plan.ReviewedUnit{Key: schema.InstanceKey(long, long, name), Digest: strings.Repeat("d", 64),
			Steps: []string{"create controller-0 on " + long}, Facts: []string{"it is Absent: \t#'\"", strings.Repeat("f", 200)}}
	}
	v := plan.Review{APIVersion: schema.APIVersion, Kind: plan.KindReview, Pull: pull,
		Shown: plan.Shown{Head: strings.Repeat("a", 40), Base: strings.Repeat("b", 40), Digest: strings.Repeat("c", 64), Key: "k"}}
	v.Keep(all)
	next := v.Shown
	next.Key = "l"
	v.Next = &next
	return v
}

// Reviews of any size are stored beside the statuses and read back by a new
// reader. Invalid files are skipped.
func TestLongReviewsRoundTrip(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	r := open(t, s)
	tips := fetch(t, r)
	b := reconciler.StatusBatch{Revision: reconciler.Revision{Commit: tips.Main},
		Reviews: []plan.Review{reviewed(7, 2), reviewed(8, 20_000), reviewed(9, 1)}}
	tip, err := r.WriteStatus(t.Context(), tips.Status, b)
	require.NoError(t, err)
	same, err := r.WriteStatus(t.Context(), tip, b)
	require.NoError(t, err)
	require.Equal(t, tip, same, "an unchanged review is not written")
	subject, err := s.Git("log", "-1", "--format=%s", reconciler.BranchStatus)
	require.NoError(t, err)
	require.Equal(t, "Reviews of 3 pull requests", subject)

	tip, err = r.WriteStatus(t.Context(), tip, reconciler.StatusBatch{Revision: b.Revision, ReviewsGone: []int{9, 10}})
	require.NoError(t, err)
	read := func(commit string) reconciler.StatusTree {
		other := open(t, s)
		fetch(t, other)
		got, err := other.ReadStatus(t.Context(), commit)
		require.NoError(t, err)
		return got
	}
	for _, got := range []reconciler.StatusTree{read(tip), func() reconciler.StatusTree {
		g, err := r.ReadStatus(t.Context(), tip)
		require.NoError(t, err)
		return g
	}()} {
		require.Empty(t, got.Warnings)
		require.Len(t, got.Reviews, 2)
		require.Equal(t, &b.Reviews[0], got.Reviews[7])
		require.Equal(t, &b.Reviews[1], got.Reviews[8])
	}
	big := read(tip).Reviews[8]
	require.Len(t, big.Units, plan.MaxReviewedUnits)
	at := func(i int) (*plan.ReviewedUnit, bool) {
		long := strings.Repeat("n", 40)
		return big.Unit(schema.InstanceKey(long, long, fmt.Sprintf("%05d%s", i, long[5:])), strings.Repeat("d", 64))
	}
	for i, want := range map[int]bool{0: true, 1999: true, 2000: true, 11_999: true, 12_000: false} {
		_, same := at(i)
		require.Equal(t, want, same, "unit %d", i)
	}
	unit, _ := at(0)
	require.NotEmpty(t, unit.Steps)
	unit, _ = at(1999)
	require.Empty(t, unit.Steps, "units beyond the limit have no steps")

	forged := s.MustCommit(t, reconciler.BranchStatus, gittest.Commit{Message: "x", Files: map[string]string{
		"pulls/07.yaml": "kind: PullReview\n", "pulls/x.yaml": "a", "pulls/9/a.yaml": "a",
		"pulls/11.yaml": "apiVersion: berth/v1\nkind: PullReview\npull: 12\n",
		"pulls/12.yaml": "apiVersion: berth/v1\nkind: InstanceStatus\npull: 12\n", "pulls/13.yaml": ":",
		"pulls/14.yaml": strings.Repeat("#", 5<<20),
		"pulls/15.yaml": "apiVersion: berth/v1\nkind: PullReview\npull: 15\nunits: [" + strings.Repeat("{},", plan.MaxReviewedUnits+1) +
			"]\n",
	}})
	got := read(forged)
	require.Len(t, got.Reviews, 2)
	require.Len(t, got.Warnings, 8)
}
