package api

import (
	"context"
	"errors"
	"time"

	"berth/reconciler/plan"
)

// ErrNoEventLog means that this daemon cannot read the event log now, because it starts, stands by or ends. Test
// with errors.Is.
var ErrNoEventLog = errors.New("no event log")

// EventLog is the log of the estate's events, in the order of writing.
type EventLog interface {
	// Changed returns a channel that is closed when the log may have later events, or cannot be read here any more.
	Changed() <-chan struct{}
	// Start returns the place after which the events since a time follow; for the zero time, that of the last event.
	// The error is ErrNoEventLog, plan.ErrFarPlace or that of reading.
	Start(ctx context.Context, since time.Time) (place string, err error)
	// After returns a reader of the events after a place.
	After(place string) EventReader
}

// EventReader reads the events after a place of an EventLog, also those that are written later. It is for one caller.
type EventReader interface {
	// Next returns the next events, at most about a thousand or a megabyte, and the place that it reached, which stays the same
	// where the log has no more. The error is ErrNoEventLog, plan.ErrNoPlace, plan.ErrFarPlace or that of reading.
	Next(ctx context.Context) (events []plan.PlacedEvent, reached string, err error)
}

// noEventLog is the log of an API that has none.
type noEventLog struct{}

func (noEventLog) Changed() <-chan struct{}                         { return nil }
func (noEventLog) Start(context.Context, time.Time) (string, error) { return "", ErrNoEventLog }
func (noEventLog) After(string) EventReader                         { return noEventLog{} }
func (noEventLog) Next(context.Context) ([]plan.PlacedEvent, string, error) {
	return nil, "", ErrNoEventLog
}
