package gitrepo_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
)

// EventsSince reads newest first back to a time, skips a damaged line, and stops
// when the caller stops.
func TestEventsSinceReadsNewestFirst(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	r := open(t, s)
	main := fetch(t, r).Main
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	tip := ""
	for day := range 5 {
		b := batch(uint64(day+1), main)
		b.Events = []plan.Event{{EventID: fmt.Sprint("e", day), EventType: "apps.instance.deleted", OccurredAt: start.AddDate(0, 0, day),
			Version: "1", Payload: []byte(`{}`)}}
		b.Revision.Sequence = uint64(day + 1)
		var err error
		tip, err = r.WriteStatus(t.Context(), tip, b)
		require.NoError(t, err)
	}
	read := func(commit string, since time.Time) (ids []string) {
		for e, err := range r.EventsSince(t.Context(), commit, since) {
			require.NoError(t, err)
			ids = append(ids, e.EventID)
		}
		return ids
	}
	require.Equal(t, []string{"e4", "e3", "e2", "e1", "e0"}, read(tip, start))
	require.Equal(t, []string{"e4", "e3"}, read(tip, start.AddDate(0, 0, 3)))
	require.Empty(t, read(tip, start.AddDate(0, 1, 0)))
	require.Empty(t, read("", start))

	files, err := s.Files(tip)
	require.NoError(t, err)
	damaged := ""
	for path := range files {
		if len(path) > 20 && path[:len("events/2026/03/04")] == "events/2026/03/04" {
			damaged = path
		}
	}
	s.MustCommit(t, reconciler.BranchStatus, gittest.Commit{Message: "damage", Files: map[string]string{damaged: "{\n"}})
	tip = fetch(t, r).Status
	require.Equal(t, []string{"e4", "e2", "e1", "e0"}, read(tip, start))

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range r.EventsSince(ended, tip, start) {
		require.ErrorIs(t, err, context.Canceled)
	}
	for e := range r.EventsSince(t.Context(), tip, start) {
		require.Equal(t, "e4", e.EventID)
		break
	}
}
