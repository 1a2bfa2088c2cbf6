package status

import (
	"context"
	"fmt"
	"sync"
	"time"

	"berth/reconciler/plan"
)

// pending is what the estate's daemon recorded and the remote does not have yet.
// Its lock guards everything that one commit writes: the statuses, the reviews,
// the revision, events and audit records.
type pending struct {
	mu     sync.Mutex
	now    func() time.Time
	window time.Duration

	count    uint64          // of changes so far
	pushed   uint64          // changes up to this one are on the remote
	urgent   bool            // a caller waits for a change, such as a new phase
	lastPush time.Time       // when the last push began
	events   []plan.Event    // in order
	rules    *ruleLog        // adds the firings of rules to the events
	causes   map[string]bool // correlation IDs of the changes

	waiters  []chan struct{} // closed after the next attempt to push
	lastErr  error           // of the last attempt
	deposed  error           // why this daemon may not write any more; nil: it may
	changed  chan struct{}   // a change was recorded
	flushing chan struct{}   // a caller waits for a push
	answered chan struct{}   // the remote answered a fetch
}

func newPending(window time.Duration, now func() time.Time) *pending {
	return &pending{
		now: now, window: window, causes: map[string]bool{}, rules: newRuleLog(),
		changed: make(chan struct{}, 1), flushing: make(chan struct{}, 1), answered: make(chan struct{}, 1),
	}
}

// change counts a change and wakes the writer. The caller holds the lock.
func (p *pending) change(correlationID string) {
	p.count++
	p.causedBy(correlationID)
	signal(p.changed)
}

// addEvents adds events, each followed by the firings of rules on it: one commit has both. The caller holds the lock.
func (p *pending) addEvents(events ...plan.Event) {
	p.events = append(p.events, p.rules.record(events)...)
}

func (p *pending) causedBy(correlationID string) {
	if correlationID != "" {
		p.causes[correlationID] = true
	}
}

// delay returns how long to gather changes before the next push: the window, or
// what is left of it since the last push if a change is urgent.
func (p *pending) delay() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.urgent {
		return max(0, p.window-p.now().Sub(p.lastPush))
	}
	return p.window
}

// written notes that the changes up to a count are on the remote.
func (p *pending) written(upTo uint64) {
	if p.count == upTo {
		clear(p.causes)
	}
	p.pushed, p.lastErr = upTo, nil
	p.release()
}

// failed notes that an attempt to push failed, and returns err.
func (p *pending) failed(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastErr = err
	p.release()
	return err
}

// depose ends all writing with err, which it returns. The caller holds the lock.
func (p *pending) depose(err error) error {
	p.deposed = err
	p.release()
	signal(p.flushing)
	return err
}

// release wakes the callers that wait for an attempt. The caller holds the lock.
func (p *pending) release() {
	for _, ch := range p.waiters {
		close(ch)
	}
	p.waiters = nil
}

// FlushTo waits until the changes up to a count are on the remote, and has them
// pushed at once. If ctx ends first, it returns why the remote does not have them.
func (p *pending) FlushTo(ctx context.Context, target uint64) error {
	for {
		p.mu.Lock()
		if p.deposed != nil {
			defer p.mu.Unlock()
			return p.deposed
		}
		if p.pushed >= target {
			p.mu.Unlock()
			return nil
		}
		attempt := make(chan struct{})
		p.waiters = append(p.waiters, attempt)
		p.mu.Unlock()
		signal(p.flushing)
		select {
		case <-attempt:
		case <-ctx.Done():
			p.mu.Lock()
			err := p.lastErr
			p.mu.Unlock()
			if err == nil {
				err = ctx.Err()
			}
			return fmt.Errorf("status not written yet: %w", err)
		}
	}
}

// PushSoon has the changes up to a count pushed at once, without waiting for it, and returns the
// count up to which the changes are on the remote.
func (p *pending) PushSoon(target uint64) (pushed uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pushed < target {
		signal(p.flushing)
	}
	return p.pushed
}

// Flush is FlushTo for everything recorded before the call.
func (p *pending) Flush(ctx context.Context) error {
	p.mu.Lock()
	target := p.count
	p.mu.Unlock()
	return p.FlushTo(ctx, target)
}

// IsWritten returns true if everything recorded is on the remote.
func (p *pending) IsWritten() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pushed == p.count
}

// signal fills a channel of capacity 1, unless it is full.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
