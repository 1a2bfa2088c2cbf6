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

// FlushUsage returns once no usage waits to be written. A caller that compares usage with the branch calls
// it before: the branch lacks what waits.
func (w *Writer) FlushUsage(ctx context.Context) error {
	w.mu.Lock()
	waits := len(w.usage.records)+len(w.usage.closings) > 0
	w.mu.Unlock()
	if !waits {
		return nil
	}
	return w.Flush(ctx)
}

// addUsage adds the records that do not wait to be written already: a caller tries again while the
// remote is down. A later reading of a part that waits is a correction of it. It does not replace the
// record that waits, which a push may be writing.
func (w *Writer) addUsage(records []usage.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	waiting := usage.NewRecorded()
	for _, r := range w.usage.records {
		waiting.Add(r)
	}
	for _, r := range waiting.Unrecorded(records) {
		w.usage.records = append(w.usage.records, r)
		w.change(r.CorrelationID)
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
