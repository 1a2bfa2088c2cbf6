package daemon

import (
	"context"
	"time"

	"berth/reconciler/gitrepo/statusbranch"
	"berth/reconciler/plan"
	"berth/webhooks/api"
)

// eventLog is the event log on berth/status as the controller that runs leads with it. The API outlives controllers.
type eventLog struct{ e *estate }

var _ api.EventLog = eventLog{}

// Changed returns a channel that is closed by the next commit of berth/status and when leadership ends.
func (l eventLog) Changed() <-chan struct{} {
	if d := l.e.running.Load(); d != nil {
		_, changed, _ := d.loop.StatusTip()
		return changed
	}
	return nil
}

// at calls read with the controller that leads and its commit of berth/status.
func (l eventLog) at(read func(d *controller, commit string) error) error {
	d := l.e.running.Load()
	if d == nil {
		return api.ErrNoEventLog
	}
	commit, _, leads := d.loop.StatusTip()
	if !leads {
		return api.ErrNoEventLog
	}
	return read(d, commit)
}

func (l eventLog) Start(ctx context.Context, since time.Time) (place string, err error) {
	err = l.at(func(d *controller, commit string) (err error) {
		place, err = d.repo.EventPlace(ctx, commit, since)
		return err
	})
	return place, err
}

func (l eventLog) After(place string) api.EventReader { return &eventReader{log: l, place: place} }

// eventReader reads the event log from a place on, at the newest commit of berth/status.
type eventReader struct {
	log   eventLog
	place string
	of    *controller               // with which reads
	reads *statusbranch.EventReader // nil: none yet
}

// Next implements api.EventReader.
func (r *eventReader) Next(ctx context.Context) (events []plan.PlacedEvent, reached string, err error) {
	err = r.log.at(func(d *controller, commit string) (err error) {
		if r.of != d || r.reads.IsEnd() {
			if r.reads, err = d.repo.EventsAfter(ctx, commit, r.place); err != nil {
				r.of = nil
				return err
			}
			r.of = d
		}
		if events, reached, err = r.reads.Next(ctx); err == nil {
			r.place = reached
		}
		return err
	})
	return events, reached, err
}
