package loop

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
	// defaultRetention is for how long a deleted instance can be read by its id.
	defaultRetention = 90 * 24 * time.Hour
	// maxDeletions bounds how many deleted instances are kept in memory, some
	// 500 bytes each; beyond that the oldest are forgotten.
	maxDeletions = 20_000
	// deletionsAgainIn is when the event log is read again that could not be read.
	deletionsAgainIn = 30 * time.Second
)

// deletions are the instances that were deleted within the retention, as the
// event log says. They are read from it once, and kept up with each event.
// Safe for concurrent use.
type deletions struct {
	retention time.Duration // negative: none are kept
	now       func() time.Time

	mu    sync.Mutex
	of    map[string]*plan.DeletedInstance // by "<tenant>.<project>/<id>" and by resource name
	order []*plan.DeletedInstance          // oldest first
}

func newDeletions(retention time.Duration, now func() time.Time) *deletions {
	if retention == 0 {
		retention = defaultRetention
	}
	return &deletions{retention: retention, now: now, of: map[string]*plan.DeletedInstance{}}
}

// find is the instance of a project that was deleted last of those with an id or
// a name.
func (d *deletions) find(tenant, project, id string) (plan.DeletedInstance, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	one := d.of[tenant+"."+project+"/"+id]
	if one == nil || d.now().Sub(one.DeletedAt) > d.retention {
		return plan.DeletedInstance{}, false
	}
	return *one, true
}

// note takes in events, of which only deletions of instances are kept. An event
// that is noted again changes nothing.
func (d *deletions) note(events ...plan.Event) {
	for _, e := range events {
		if e.EventType == string(event.InstanceDeleted) && d.retention > 0 {
			if one, ok := deletedInstance(e); ok {
				d.put(one)
			}
		}
	}
}

func (d *deletions) put(one *plan.DeletedInstance) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.now().Sub(one.DeletedAt) > d.retention {
		return
	}
	at, _ := slices.BinarySearchFunc(d.order, one.DeletedAt, func(o *plan.DeletedInstance, t time.Time) int { return o.DeletedAt.Compare(t) })
	for _, o := range d.order[at:] {
		if !o.DeletedAt.Equal(one.DeletedAt) {
			break
		}
		if o.Key == one.Key && o.ID == one.ID {
			return // it was noted when it happened, and read from the log
		}
	}
	for _, name := range deletedNames(one) {
		if was := d.of[name]; was == nil || was.DeletedAt.Before(one.DeletedAt) {
			d.of[name] = one
		}
	}
	d.order = slices.Insert(d.order, at, one)
	gone := max(0, len(d.order)-maxDeletions)
	for gone < len(d.order) && d.now().Sub(d.order[gone].DeletedAt) > d.retention {
		gone++
	}
	for _, old := range d.order[:gone] {
		for _, name := range deletedNames(old) {
			if d.of[name] == old {
				delete(d.of, name)
			}
		}
	}
	d.order = slices.Delete(d.order, 0, gone)
}

func deletedNames(one *plan.DeletedInstance) []string {
	names := []string{one.Key.ResourceName(), one.Key.ProjectID() + "/" + one.ID}
	return slices.Compact(names)
}

// deletedInstance reads an event; false for one that Berth did not write.
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

// loadDeletions reads the deletions of the event log, until that was possible
// once or ctx ends.
func (r *Reconciler) loadDeletions(ctx context.Context) {
	log, ok := r.o.Repo.(reconciler.EventReader)
	if !ok || r.deletions.retention < 0 {
		return
	}
	for ctx.Err() == nil {
		err := r.readDeletions(ctx, log)
		if err == nil {
			return
		}
		r.o.Log.Warn("event log unreadable; instances deleted before this start may be missing in the API", "error", err, "again_in", deletionsAgainIn)
		select {
		case <-time.After(deletionsAgainIn):
		case <-ctx.Done():
		}
	}
}

func (r *Reconciler) readDeletions(ctx context.Context, log reconciler.EventReader) error {
	since := r.o.Now().Add(-r.deletions.retention)
	for e, err := range log.EventsSince(ctx, r.writer.written(), since) {
		if err != nil {
			return err
		}
		r.deletions.note(e)
	}
	return nil
}

// written is the commit of berth/status that was written or read last.
func (w *writer) written() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tip
}
