package status

import (
	"context"

	"berth/schema/usage"
)

// pendingUsage is what is not on the remote yet, in order: a later day replaces an earlier one.
type pendingUsage struct {
	days     []usage.Day
	closings []usage.Closing
}

// RecordUsage records days of usage, each whole, and which days are closed, in one commit. It returns once
// that is on the remote.
func (w *Writer) RecordUsage(ctx context.Context, days []usage.Day, closings []usage.Closing) error {
	if len(days)+len(closings) == 0 {
		return nil
	}
	w.mu.Lock()
	w.usage.days, w.usage.closings = append(w.usage.days, days...), append(w.usage.closings, closings...)
	w.change("")
	w.mu.Unlock()
	return w.Flush(ctx)
}

// FlushUsage returns once no usage waits to be written. A caller that writes a day whole calls it before it
// reads the branch: the branch lacks what waits.
func (w *Writer) FlushUsage(ctx context.Context) error {
	w.mu.Lock()
	waits := len(w.usage.days)+len(w.usage.closings) > 0
	w.mu.Unlock()
	if !waits {
		return nil
	}
	return w.Flush(ctx)
}
