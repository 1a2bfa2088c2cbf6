package daemon

import (
	"context"
	"time"

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

func (l eventLog) After(ctx context.Context, place string) (events []plan.PlacedEvent, reached string, err error) {
	err = l.at(func(d *controller, commit string) (err error) {
		events, reached, err = d.repo.EventsAfter(ctx, commit, place)
		return err
	})
	return events, reached, err
}
