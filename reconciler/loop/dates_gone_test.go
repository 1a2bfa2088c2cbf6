package loop

import (
	"berth/reconciler"
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// history is a main whose commits are numbered, and what of it is held.
type history struct {
	reconciler.Repo
	changes [][]reconciler.PathChange // by commit
	held    []reconciler.PathChange   // from main to what is in force
}

func (h *history) Log(_ context.Context, from, to string, _ int) (out []reconciler.Commit, _ error) {
	first, last := 0, 0
	_, _ = fmt.Sscan(from, &first)
	_, _ = fmt.Sscan(to, &last)
	for n := last; n > first; n-- {
		out = append(out, reconciler.Commit{ID: fmt.Sprint(n), Parents: []string{fmt.Sprint(n - 1)}, When: time.Unix(int64(n), 0)})
	}
	return out, nil
}

func (h *history) Diff(_ context.Context, _, to string) ([]reconciler.PathChange, error) {
	if to == "in force" {
		return h.held, nil
	}
	n := 0
	_, _ = fmt.Sscan(to, &n)
	return h.changes[n-1], nil
}

// What went is not remembered for ever; what went from main alone is in force, and
// keeps its time.
func TestDatesOfWhatWentAreDropped(t *testing.T) {
	t.Parallel()
	const one, two = "tenants/physics/a.yaml", "tenants/physics/b.yaml"
	h := &history{changes: [][]reconciler.PathChange{
		{{Path: one, To: "x"}, {Path: two, To: "y"}},
		{{Path: one, From: "x"}, {Path: two, From: "y"}},
		{{Path: two, To: "z"}},
	}}
	r := New(Options{Repo: h, Log: slog.New(slog.DiscardHandler)})
	date := func(main string) {
		t.Helper()
		r.state = &reconciler.State{Main: main, InForce: "in force"}
		again, err := r.date(t.Context())
		require.NoError(t, err)
		require.Zero(t, again)
	}
	h.held = []reconciler.PathChange{{Path: one, To: "x"}, {Path: two, To: "y"}}
	date("2")
	created, updated := r.dates.find(one, "x")
	require.EqualValues(t, 1, created.Unix())
	require.EqualValues(t, 1, updated.Unix())

	h.held = []reconciler.PathChange{{Path: two, To: "y", From: "z"}}
	date("3")
	require.Len(t, r.dates.of, 1, "nothing has the first any more")
	created, _ = r.dates.find(two, "z")
	require.EqualValues(t, 3, created.Unix(), "it is new")
	h.held = nil
	date("3")
	require.Len(t, r.dates.of, 1, "it is there")
}
