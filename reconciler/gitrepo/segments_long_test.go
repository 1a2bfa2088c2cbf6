//go:build long

package gitrepo_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/gitrepo/statusbranch"
	"berth/schema/audit"
)

// The cost of reading the newest lines of a long log follows their number, also
// if a clock was fast for a while.
func TestLongCostOfNewestLinesFollowsTheirNumber(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	files := map[string]string{}
	records := make([]audit.Record, 3000)
	for i := range records {
		at := day(0).Add(time.Duration(i) * time.Hour)
		if i >= 2000 && i < 2010 {
			at = at.AddDate(3, 0, 0)
		}
		records[i] = audit.Record{OccurredAt: at, Action: fmt.Sprint(i)}
	}
	records = audit.Chain(audit.Head{}, records)
	for _, r := range records {
		files[fmt.Sprintf("audit/%s/%012d-1.jsonl", r.OccurredAt.Format("2006/01/02/15"), r.Sequence)] = string(audit.Encode(r)) + "\n"
	}
	head := audit.Head{Sequence: 3000, Hash: records[2999].Hash}
	files["revision.yaml"] = fmt.Sprintf("epoch: 1\naudit_sequence: %d\naudit_head: %s\n", head.Sequence, head.Hash)
	tip := s.MustCommit(t, "berth/status", gittest.Commit{Message: "x", Files: files})
	checkout, err := gitrepo.OpenLocal(s.Dir)
	require.NoError(t, err)
	defer checkout.Close()
	n := 0
	for l, err := range checkout.Audit(t.Context(), tip, statusbranch.LogOrder{NewestFirst: true}) {
		require.NoError(t, err)
		require.EqualValues(t, 3000-n, l.Value.Sequence)
		if n++; n == 50 {
			break
		}
	}
	require.Less(t, checkout.TreesRead(), 200, "of some 3,300 directories")
	tail, err := checkout.AuditTail(t.Context(), tip, time.Time{}, 2000)
	require.NoError(t, err)
	require.Len(t, tail, 2000)
	_, err = audit.VerifyTail(tail, head)
	require.NoError(t, err)
}

// For any clock, both logs are read in the order of writing.
func TestLongRandomClocksDoNotChangeLogOrder(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	r := open(t, s)
	fetch(t, r)
	for seed := range uint64(10) {
		draw := rand.New(rand.NewPCG(seed, 0))
		clocks := make([]time.Time, 2+draw.IntN(7))
		for i := range clocks {
			clocks[i] = day(9).Add(time.Duration(draw.IntN(40_000)-20_000) * time.Hour)
		}
		require.NoError(t, s.SetRef("refs/heads/berth/status", "")) // start over
		tip, head := logs(t, r, "", 2, clocks...)
		want := numbers("%d", 1, 2*len(clocks))
		back := slices.Clone(want)
		slices.Reverse(back)
		require.Equal(t, want, collect(t, r.Events(t.Context(), tip, statusbranch.LogOrder{}), eventID), "%v", clocks)
		require.Equal(t, back, collect(t, r.Events(t.Context(), tip, statusbranch.LogOrder{NewestFirst: true}), eventID), "%v", clocks)
		require.NoError(t, verifyAudit(t.Context(), r, tip, head))
		for least := range 2 * len(clocks) {
			tail, err := r.AuditTail(t.Context(), tip, time.Time{}, least+1)
			require.NoError(t, err)
			_, err = audit.VerifyTail(tail, head)
			require.NoError(t, err, "the last %d of %v", least+1, clocks)
		}
	}
}
