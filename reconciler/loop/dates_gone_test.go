package loop

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
)

// mainHistory is a main branch with numbered commits and held changes.
type mainHistory struct {
	reconciler.Repo
	changes [][]reconciler.PathChange // by commit
	held    []reconciler.PathChange   // difference of main and berth/in-force
}

func (h *mainHistory) Log(_ context.Context, from, to string, _ int) (out []reconciler.Commit, _ error) {
	first, last := 0, 0
	_, _ = fmt.Sscan(from, &first)
	_, _ = fmt.Sscan(to, &last)
	for n := last; n > first; n-- {
		out = append(out, reconciler.Commit{ID: fmt.Sprint(n), Parents: []string{fmt.Sprint(n - 1)}, When: time.Unix(int64(n), 0)})
	}
	return out, nil
}

func (h *mainHistory) Diff(_ context.Context, _, to string) ([]reconciler.PathChange, error) {
	if to == "in force" {
		return h.held, nil
	}
	n := 0
	_, _ = fmt.Sscan(to, &n)
	return h.changes[n-1], nil
}

// The dates of a deleted document are dropped; a held deletion keeps them.
func TestDatesOfDeletedDocumentsAreDropped(t *testing.T) {
	t.Parallel()
	const one, two = "tenants/physics/a.yaml", "tenants/physics/b.yaml"
	h := &mainHistory{changes: [][]reconciler.PathChange{
		{{Path: one, To: "x"}, {Path: two, To: "y"}},
		{{Path: one, From: "x"}, {Path: two, From: "y"}},
		{{Path: two, To: "z"}},
	}}
	f := newInForce(NewMetrics(nil))
	dates := newDates(f, h, slog.New(slog.DiscardHandler))
	date := func(main string) {
		t.Helper()
		f.set(&reconciler.State{Main: main, InForce: "in force"})
		again, err := dates.reconcile(t.Context(), reconciler.Item{})
		require.NoError(t, err)
		require.Zero(t, again)
	}
	h.held = []reconciler.PathChange{{Path: one, To: "x"}, {Path: two, To: "y"}}
	date("2")
	created, updated := dates.find(one, "x")
	require.EqualValues(t, 1, created.Unix())
	require.EqualValues(t, 1, updated.Unix())

	h.held = []reconciler.PathChange{{Path: two, To: "y", From: "z"}}
	date("3")
	require.Len(t, dates.byPath, 1, "neither branch has the first document")
	created, _ = dates.find(two, "z")
	require.EqualValues(t, 3, created.Unix(), "the document is new")
	h.held = nil
	date("3")
	require.Len(t, dates.byPath, 1, "the document exists")
}
