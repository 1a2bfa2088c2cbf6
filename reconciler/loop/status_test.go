package loop

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/reconciler/status"
	"berth/schema"
	"berth/schema/audit"
)

// emptyRepo is an empty berth/status that accepts every write and keeps the events.
type emptyRepo struct {
	reconciler.Repo
	events []plan.Event
}

func (*emptyRepo) Fetch(context.Context) (reconciler.Tips, error) {
	return reconciler.Tips{Main: "m"}, nil
}

func (*emptyRepo) ReadStatus(context.Context, string) (reconciler.StatusTree, error) {
	return reconciler.StatusTree{}, nil
}

func (*emptyRepo) AuditTail(context.Context, string, time.Time, int) ([]audit.Line, error) {
	return nil, nil
}

func (e *emptyRepo) WriteStatus(_ context.Context, _ string, b reconciler.StatusBatch) (string, error) {
	e.events = append(e.events, b.Events...)
	return "1", nil
}

func testLog(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}

var train = schema.InstanceKey("physics", "lhc", "train")

func phase(p plan.Phase) plan.Status {
	return plan.Status{Key: train, Phase: p, LastApplied: plan.LastApplied{Revision: "abc", CorrelationID: "c1"},
		EffectiveValues: plan.EffectiveValues{App: "app"}}
}

// put replaces the status of a unit.
func put(w *status.Writer, s plan.Status) bool {
	changed, _ := w.SetUnit(w.Unit(s.Key), s)
	return changed
}
