package status

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/event"
)

const (
	// defaultRetention is how long a deleted instance can be read by its ID.
	defaultRetention = 90 * 24 * time.Hour
	// maxDeleted bounds the deleted instances in memory, about 500 bytes each. The
	// oldest are dropped first.
	maxDeleted = 20_000
	// deletedRetry is the delay before an unreadable event log is read again.
	deletedRetry = 30 * time.Second
)

// DeletedInstances are the instances deleted within the retention. They are read
// from the event log once, and each new event adds to them. Safe for concurrent
// use.
type DeletedInstances struct {
	retention time.Duration // negative: nothing is kept
	now       func() time.Time

	mu    sync.Mutex
	of    map[string]*plan.DeletedInstance // the last one, by "<tenant>.<project>/<id>" and by resource name
	order []*plan.DeletedInstance          // oldest first
}

func newDeletedInstances(retention time.Duration, now func() time.Time) *DeletedInstances {
	if retention == 0 {
		retention = defaultRetention
	}
	return &DeletedInstances{retention: retention, now: now, of: map[string]*plan.DeletedInstance{}}
}

// Find returns the last deleted instance of a project with that ID or name, or false.
func (d *DeletedInstances) Find(tenant, project, id string) (plan.DeletedInstance, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	one := d.of[tenant+"."+project+"/"+id]
	if one == nil || d.isOver(one) {
		return plan.DeletedInstance{}, false
	}
	return *one, true
}

// Note adds the deletions among events. Adding an event again changes nothing.
func (d *DeletedInstances) Note(events ...plan.Event) {
	for _, e := range events {
		if e.EventType == string(event.InstanceDeleted) && d.retention > 0 {
			if one, ok := deletedInstance(e); ok {
				d.add(one)
			}
		}
	}
}

func (d *DeletedInstances) add(one *plan.DeletedInstance) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isOver(one) {
		return
	}
	at, _ := slices.BinarySearchFunc(d.order, one.DeletedAt,
		func(o *plan.DeletedInstance, t time.Time) int { return o.DeletedAt.Compare(t) })
	for _, o := range d.order[at:] {
		if !o.DeletedAt.Equal(one.DeletedAt) {
			break
		}
		if o.Key == one.Key && o.ID == one.ID {
			return
		}
	}
	for _, name := range namesOf(one) {
		if was := d.of[name]; was == nil || was.DeletedAt.Before(one.DeletedAt) {
			d.of[name] = one
		}
	}
	d.order = slices.Insert(d.order, at, one)
	d.forgetOver()
}

// forgetOver removes the deletions whose retention has ended, and those beyond the limit. It is called with the lock.
func (d *DeletedInstances) forgetOver() {
	over := max(0, len(d.order)-maxDeleted)
	for over < len(d.order) && d.isOver(d.order[over]) {
		over++
	}
	for _, old := range d.order[:over] {
		for _, name := range namesOf(old) {
			if d.of[name] == old {
				delete(d.of, name)
			}
		}
	}
	d.order = slices.Delete(d.order, 0, over)
}

// isOver returns true if the retention of a deleted instance has ended.
func (d *DeletedInstances) isOver(one *plan.DeletedInstance) bool {
	return d.now().Sub(one.DeletedAt) > d.retention
}

func namesOf(one *plan.DeletedInstance) []string {
	return slices.Compact([]string{one.Key.ResourceName(), one.Key.ProjectID() + "/" + one.ID})
}

// deletedInstance decodes an event; false if Berth did not write it.
func deletedInstance(e plan.Event) (*plan.DeletedInstance, bool) {
	var p event.Instance
	if err := json.Unmarshal(e.Payload, &p); err != nil {
		return nil, false
	}
	tenant, project, ok1 := strings.Cut(p.ProjectID, ".")
	in, name, ok2 := strings.Cut(p.ResourceName, "/")
	if !ok1 || !ok2 || in != p.ProjectID || tenant != p.OrgID || p.AppInstanceID == "" {
		return nil, false
	}
	return &plan.DeletedInstance{
		Key: schema.InstanceKey(tenant, project, name), ID: p.AppInstanceID, App: p.AppSlug,
		OperatingMode: p.OperatingMode, ControlPlaneScope: p.ControlPlaneScope, RuntimeBackend: p.RuntimeBackend,
		RequestedBy: p.RequestedBy, Revision: p.Revision, CorrelationID: e.CorrelationID, DeletedAt: e.OccurredAt.UTC(),
	}, true
}

// LoadDeleted reads the deleted instances from the event log. It tries again until
// it could read them or ctx ends.
func (w *Writer) LoadDeleted(ctx context.Context) {
	log, ok := w.o.Repo.(reconciler.EventReader)
	if !ok || w.Deleted.retention < 0 {
		return
	}
	for ctx.Err() == nil {
		err := w.loadDeleted(ctx, log)
		if err == nil {
			return
		}
		w.o.Log.Warn("event log unreadable; the API may miss instances deleted before this start", "error", err, "retry_in", deletedRetry)
		select {
		case <-time.After(deletedRetry):
		case <-ctx.Done():
		}
	}
}

func (w *Writer) loadDeleted(ctx context.Context, log reconciler.EventReader) error {
	w.mu.Lock()
	tip := w.tip.commit
	w.mu.Unlock()
	for e, err := range log.EventsSince(ctx, tip, w.o.Now().Add(-w.Deleted.retention)) {
		if err != nil {
			return err
		}
		w.Deleted.Note(e)
	}
	return nil
}
