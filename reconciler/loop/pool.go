package loop

import (
	"cmp"
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"berth/reconciler"
	"berth/reconciler/fair"
)

const (
	// slow is how long an item may hold a worker of a pool.
	slow = 2 * time.Second
	// hangingPerWorker bounds the slow items that run beside the others, for each
	// worker. An observation ends after Settings.Observe, and each hanging item holds
	// a worker for slow before it gives the worker away: at most nine items of a
	// worker hang at a time.
	hangingPerWorker = 16
	// outsidePerWorker bounds the items that wait without a worker, for each worker.
	outsidePerWorker = 64
)

// pool runs the items of one queue. It bounds the number of goroutines and keeps
// hanging items from delaying the others:
//
//   - At most workers items run at a time. Tenants take turns, and the items of a tenant
//     run in the order they came.
//
//   - The items of a tenant take at most the share of the places that fair.MayTake gives them, and those that were
//     slow the last time have a line and places of their own. The last place is for a tenant that has none.
//
//   - An item that takes longer than slow gives its worker to the next item and
//     runs on beside them, up to maxHanging such items. Beyond that it keeps its
//     worker.
//
//   - The next time, that item waits in a line of its own, with maxHanging workers,
//     until it is quick again.
//
//   - Items without a key, of which there are few, start at once.
//
//   - An item that waits for its record on the remote gives its worker away for that time
//     (withoutWorker), so that one commit has the records of many. It gets a worker again at the
//     turn of its tenant. While outsidePerWorker of them for each worker wait, or the share of its
//     tenant, no further item starts: it could not wait without a worker.
//
// The queue hands out no item twice at a time, so no two workers run the same one.
type pool struct {
	queue      workqueue.TypedInterface[reconciler.Item]
	workers    int
	maxHanging int
	perTenant  int // items of one tenant that run at a time, of those that were slow and of the others; 0: its share of the places
	do         func(context.Context, reconciler.Item)

	running   *goroutines
	mu        sync.Mutex
	prompt    line
	hanging   line
	outside   int                      // items that wait without a worker
	outsideOf map[string]int           // those of each tenant
	wasSlow   map[reconciler.Item]bool // items that took longer than slow in their last run
}

// line is the items that wait for a worker.
type line struct {
	waiting     *fair.Queue[reconciler.Item]
	returning   map[reconciler.Item]chan struct{} // of items in waiting that had a worker and need one again
	running     map[string]int                    // items of each tenant that have a worker, or gave it away for good
	busy, limit int                               // workers that have an item, and all of them
	aside       int                               // items that gave their worker away for good
	places      int                               // items that may run at a time
}

func newLine(limit, places int) line {
	return line{waiting: fair.NewQueue(tenantOf), returning: map[reconciler.Item]chan struct{}{}, running: map[string]int{},
		limit: limit, places: places}
}

// run works until the queue is shut down, and waits for the running items.
func (p *pool) run(ctx context.Context) {
	p.prompt, p.hanging = newLine(p.workers, p.workers+p.maxHanging), newLine(p.maxHanging, p.maxHanging)
	p.wasSlow, p.outsideOf = map[reconciler.Item]bool{}, map[string]int{}
	p.perTenant = cmp.Or(p.perTenant, p.workers+p.maxHanging)
	p.running = newGoroutines()
	defer p.running.end()
	for {
		item, down := p.queue.Get()
		if down {
			return
		}
		if item.Unit.IsZero() {
			p.running.start(func() {
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

// add adds to a count. A count of 0 has no entry.
func add(counts map[string]int, of string, n int) {
	if counts[of] += n; counts[of] == 0 {
		delete(counts, of)
	}
}

// tenantOf is the owner of a unit's item.
func tenantOf(i reconciler.Item) string { return i.Unit.Tenant }

// mayRun reports whether an item of a line may have a worker.
func (p *pool) mayRun(l *line, tenant string, item reconciler.Item) bool {
	return l.running[tenant] < p.perTenant && fair.MayTake(l.running[tenant], l.busy+l.aside, l.places) &&
		(l.returning[item] != nil || fair.MayTake(p.outsideOf[tenant], p.outside, p.workers*outsidePerWorker))
}

// popLocked removes the item of a line that gets the next worker. While no item may begin, it looks only at those that had a
// worker: the others can be many.
func (p *pool) popLocked(l *line) (item reconciler.Item, ok bool) {
	may := func(tenant string, i reconciler.Item) bool { return p.mayRun(l, tenant, i) }
	switch {
	case p.outside < p.workers*outsidePerWorker:
		return l.waiting.PopIf(may)
	case len(l.returning) > 0:
		return l.waiting.PopFirstIf(may)
	}
	return item, false
}

// startLocked gives the free workers of a line to the items that wait in it.
func (p *pool) startLocked(ctx context.Context, l *line) {
	for l.busy < l.limit {
		item, ok := p.popLocked(l)
		if !ok {
			return
		}
		l.busy++
		add(l.running, tenantOf(item), 1)
		if back := l.returning[item]; back != nil {
			delete(l.returning, item)
			close(back)
			continue
		}
		p.running.start(func() { p.work(ctx, l, item) })
	}
}

// work runs one item of a line.
func (p *pool) work(ctx context.Context, l *line, item reconciler.Item) {
	defer p.queue.Done(item)
	t := &turn{pool: p, line: l, item: item, began: time.Now(), since: time.Now(), ctx: ctx}
	t.patience = time.AfterFunc(slow, t.stepAside)
	defer t.patience.Stop()
	p.do(context.WithValue(ctx, turnKey{}, t), item)

	p.mu.Lock()
	defer p.mu.Unlock()
	t.ended = true
	add(l.running, tenantOf(item), -1)
	if t.isAside {
		l.aside--
	} else {
		l.busy--
	}
	if time.Since(t.began)-t.waited >= slow {
		p.wasSlow[item] = true
	} else {
		delete(p.wasSlow, item)
	}
	p.startLocked(ctx, l)
}

// turn is one run of an item with a worker. The lock of the pool guards it.
type turn struct {
	*pool
	ctx       context.Context // of the pool
	line      *line
	item      reconciler.Item
	began     time.Time
	since     time.Time     // when it got its worker
	waited    time.Duration // without a worker
	patience  *time.Timer
	isAside   bool // it gave its worker away for good
	isOutside bool // it waits without a worker
	ended     bool
}

// stepAside gives the worker of an item that takes long to the next one.
func (t *turn) stepAside() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended && !t.isOutside && !t.isAside && time.Since(t.since) >= slow && t.line == &t.prompt && t.line.aside < t.maxHanging {
		t.isAside = true
		t.line.aside++
		t.line.busy--
		t.startLocked(t.ctx, t.line)
	}
}

// turnKey is the key of the turn in the context of an item.
type turnKey struct{}

// withoutWorker calls wait, which only waits, and gives the worker of the item in ctx to others for
// that time. It returns once the item has a worker again.
func withoutWorker(ctx context.Context, wait func() error) error {
	t, ok := ctx.Value(turnKey{}).(*turn)
	if !ok || !t.leave() {
		return wait()
	}
	began := time.Now()
	err := wait()
	t.enter(time.Since(began))
	return err
}

// leave gives the worker away; false: the item has none.
func (t *turn) leave() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isAside {
		return false
	}
	t.patience.Stop()
	t.isOutside = true
	t.outside++
	add(t.outsideOf, tenantOf(t.item), 1)
	add(t.line.running, tenantOf(t.item), -1)
	t.line.busy--
	t.startLocked(t.ctx, t.line)
	return true
}

// enter waits for a worker, at the turn of the tenant and before its other items. The patience with
// the item begins anew.
func (t *turn) enter(waited time.Duration) {
	t.mu.Lock()
	mine := make(chan struct{})
	t.line.returning[t.item] = mine
	t.line.waiting.PushFirst(t.item)
	t.startLocked(t.ctx, t.line)
	t.mu.Unlock()
	began := time.Now()
	<-mine // others end or step aside
	t.mu.Lock()
	defer t.mu.Unlock()
	t.isOutside = false
	t.outside--
	add(t.outsideOf, tenantOf(t.item), -1)
	t.waited += waited + time.Since(began)
	t.since = time.Now()
	t.patience.Reset(slow)
	t.startLocked(t.ctx, &t.prompt) // items of the tenant may wait for this place
	t.startLocked(t.ctx, &t.pool.hanging)
}
