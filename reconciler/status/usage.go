package status

import (
	"context"

	"berth/schema/usage"
)

// pendingUsage is what is not on the remote yet.
type pendingUsage struct {
	records  []usage.Record
	closings []usage.Closing
}

// RecordUsage records what jobs used, and returns once that is on the remote. Records that are there
// already change nothing.
func (w *Writer) RecordUsage(ctx context.Context, records ...usage.Record) error {
	if len(records) == 0 {
		return nil
	}
	w.addUsage(records)
	return w.Flush(ctx)
}

// addUsage adds the records that do not wait to be written already: a caller tries again while the
// remote is down.
func (w *Writer) addUsage(records []usage.Record) {
	type version struct {
		usage.Part
		correction int
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	waiting := make(map[version]bool, len(w.usage.records))
	for _, r := range w.usage.records {
		waiting[version{r.Part(), r.Correction}] = true
	}
	for _, r := range records {
		if !waiting[version{r.Part(), r.Correction}] {
			w.usage.records = append(w.usage.records, r)
			w.change(r.CorrelationID)
		}
	}
}

// RecordClosings records that days are closed. A closing that is there already changes nothing.
func (w *Writer) RecordClosings(closings ...usage.Closing) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range closings {
		w.usage.closings = append(w.usage.closings, c)
		w.change("")
	}
}

// Tip returns the commit of berth/status that this daemon wrote or read last.
func (w *Writer) Tip() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tip
}
