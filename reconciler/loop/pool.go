package loop

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"berth/reconciler"
)

const (
	// slow is how long an item may hold a worker of a pool.
	slow = 2 * time.Second
	// hangingPerWorker bounds the slow items that run beside the others, for each
	// worker. An observation ends after Settings.Observe, and each hanging item holds
	// a worker for slow before it gives the worker away: at most nine items of a
	// worker hang at a time.
	hangingPerWorker = 16
)

// pool runs the items of one queue. It bounds the number of goroutines and keeps
// hanging items from delaying the others:
//   - At most workers items run at a time. Tenants take turns, and the items of a tenant
//     run in the order they came.
//   - An item that takes longer than slow gives its worker to the next item and
//     runs on beside them, up to maxHanging such items. Beyond that it keeps its
//     worker.
//   - The next time, that item waits in a line of its own, with maxHanging workers,
//     until it is quick again.
//   - Items without a key, of which there are few, start at once.
//
// The queue hands out no item twice at a time, so no two workers run the same one.
type pool struct {
	queue      workqueue.TypedInterface[reconciler.Item]
	workers    int
	maxHanging int
	do         func(context.Context, reconciler.Item)

	wg      sync.WaitGroup
	mu      sync.Mutex
	prompt  line
	hanging line
	aside   int                      // items of prompt that gave their worker away
	wasSlow map[reconciler.Item]bool // items that took longer than slow in their last run
}

// line is the items that wait for a worker.
type line struct {
	waiting     *fairQueue
	busy, limit int
}

// run works until the queue is shut down, and waits for the running items.
func (p *pool) run(ctx context.Context) {
	p.prompt, p.hanging = line{newFairQueue(tenantOf), 0, p.workers}, line{newFairQueue(tenantOf), 0, p.maxHanging}
	p.wasSlow = map[reconciler.Item]bool{}
	defer p.wg.Wait()
	for {
		item, down := p.queue.Get()
		if down {
			return
		}
		if item.Unit.IsZero() {
			p.wg.Go(func() {
				defer p.queue.Done(item)
				p.do(ctx, item)
			})
			continue
		}
		p.mu.Lock()
		l := &p.prompt
		if p.wasSlow[item] {
			l = &p.hanging
		}
		l.waiting.Push(item)
		p.startLocked(ctx, l)
		p.mu.Unlock()
	}
}

// tenantOf is the owner of a unit's item.
func tenantOf(i reconciler.Item) string { return i.Unit.Tenant }

// startLocked gives the free workers of a line to the items that wait in it.
func (p *pool) startLocked(ctx context.Context, l *line) {
	for l.busy < l.limit && l.waiting.Len() > 0 {
		item := l.waiting.Pop()
		l.busy++
		p.wg.Go(func() { p.work(ctx, l, item) })
	}
}

// work runs one item of a line.
func (p *pool) work(ctx context.Context, l *line, item reconciler.Item) {
	defer p.queue.Done(item)
	done, isAside, start := false, false, time.Now()
	patience := time.AfterFunc(slow, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !done && l == &p.prompt && p.aside < p.maxHanging {
			isAside = true
			p.aside++
			l.busy--
			p.startLocked(ctx, l)
		}
	})
	defer patience.Stop()
	p.do(ctx, item)

	p.mu.Lock()
	defer p.mu.Unlock()
	done = true
	if isAside {
		p.aside--
	} else {
		l.busy--
	}
	if time.Since(start) >= slow {
		p.wasSlow[item] = true
	} else {
		delete(p.wasSlow, item)
	}
	p.startLocked(ctx, l)
}
