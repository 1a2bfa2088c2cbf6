package loop

import (
	"berth/reconciler"
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

const (
	// slow is how long an item may hold a worker of a pool.
	slow = 2 * time.Second
	// hangingPerWorker bounds, for each worker, the slow items that are worked on
	// beside the others. An observation ends after observeTimeout, and each hanging
	// item holds a worker for slow before it goes on beside: that makes at most
	// nine of them at a time.
	hangingPerWorker = 16
)

// pool works on the items of one queue. It keeps items that hang from delaying
// the others, and the number of goroutines bounded:
//   - At most workers items are worked on at a time, in the order they came.
//   - An item that takes longer than slow gives its worker to the next item and
//     goes on beside them, up to hangingPerWorker items for each worker. Beyond
//     that it keeps its worker.
//   - The next time, that item waits in a line of its own, with hangingPerWorker
//     workers for each worker, until it is quick again.
//   - Items that are about no unit and no artifact, of which there are few, begin
//     at once.
//
// The queue hands out no item twice at a time, so that no two workers have the
// same one.
type pool struct {
	queue   workqueue.TypedRateLimitingInterface[reconciler.Item]
	workers int
	do      func(context.Context, reconciler.Item)

	wg      sync.WaitGroup
	mu      sync.Mutex
	prompt  line
	hanging line
	aside   int                      // items of prompt that gave their worker away
	wasSlow map[reconciler.Item]bool // took longer than slow when they were last worked on
}

// line is items that wait for a worker, first come first served.
type line struct {
	waiting     []reconciler.Item
	busy, limit int
}

// run works until the queue is shut down, and waits for what is under way.
func (p *pool) run(ctx context.Context) {
	p.prompt.limit, p.hanging.limit = p.workers, p.workers*hangingPerWorker
	p.wasSlow = map[reconciler.Item]bool{}
	defer p.wg.Wait()
	for {
		item, down := p.queue.Get()
		if down {
			return
		}
		if item.Task != reconciler.TaskUnit && item.Task != reconciler.TaskArtifact {
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
		l.waiting = append(l.waiting, item)
		p.startLocked(ctx, l)
		p.mu.Unlock()
	}
}

// startLocked gives the free workers of a line to the items that wait in it.
func (p *pool) startLocked(ctx context.Context, l *line) {
	for l.busy < l.limit && len(l.waiting) > 0 {
		item := l.waiting[0]
		l.waiting = l.waiting[1:]
		l.busy++
		p.wg.Go(func() { p.work(ctx, l, item) })
	}
}

// work works on one item of a line.
func (p *pool) work(ctx context.Context, l *line, item reconciler.Item) {
	defer p.queue.Done(item)
	done, isAside, start := false, false, time.Now()
	patience := time.AfterFunc(slow, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !done && l == &p.prompt && p.aside < p.workers*hangingPerWorker {
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
