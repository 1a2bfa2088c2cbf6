package loop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"berth/reconciler"
	"berth/reconciler/fair"
	"berth/schema"
)

const (
	// forgeWorkers publish at the forge. They are few, as a forge limits requests.
	forgeWorkers = 2
	// planWorkers plan pull requests, which is mostly computation.
	planWorkers = 3
	// artifactWorkers verify published bytes.
	artifactWorkers = 4
	// maxPlanTries bounds how often the plan of one pull request is tried in a row.
	// The next poll tries again.
	maxPlanTries = 8
	// headMovedRetry is the delay after reconciler.ErrHeadMoved.
	headMovedRetry = 2 * time.Second
	// soon is the delay of a reconciliation that follows from the one before.
	soon = time.Millisecond
)

// queue is a work queue with its workers. Each queue waits for a different external
// system, so that a slow one delays no other.
type queue struct {
	workqueue.TypedRateLimitingInterface[reconciler.Item]
	workers  int
	hanging  int                          // slow items that may run beside the workers, see pool
	ofTenant int                          // items of one tenant that run at a time in a pool; 0: the default of pool
	dropGone bool                         // an item whose subject does not exist is dropped
	maxTries int                          // of one item in a row; 0: no limit
	ownerOf  func(reconciler.Item) string // owners take turns; nil: first come, first served
}

func newQueue(q queue) *queue {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[reconciler.Item](500*time.Millisecond, 30*time.Second)
	c := workqueue.TypedRateLimitingQueueConfig[reconciler.Item]{}
	if q.ownerOf != nil {
		items := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconciler.Item]{Queue: fair.NewQueue(q.ownerOf)})
		c.DelayingQueue = workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[reconciler.Item]{Queue: items})
	}
	q.TypedRateLimitingInterface = workqueue.NewTypedRateLimitingQueueWithConfig(limiter, c)
	return &q
}

// handler reconciles an item. It returns the delay until the item is reconciled
// again; 0: only when it is enqueued again.
type handler func(context.Context, reconciler.Item) (again time.Duration, err error)

// task is a row of the table of tasks.
type task struct {
	queue *queue
	run   handler
}

// queues runs the items of all tasks. A task that is not in the table, such as a forge
// task without a forge, is ignored.
type queues struct {
	hosts     *queue // the estate and its units
	forge     *queue // publications at the forge
	plans     *queue // plans of pull requests
	artifacts *queue // published bytes
	tasks     map[reconciler.Task]task

	log     *slog.Logger
	now     func() time.Time
	metrics *Metrics
	watch   func(reconciler.Item) (ended func(done bool))
}

// newQueues makes the queues. ownerOf is the owner of an item of plans, or of the forge.
func newQueues(o *Options, ownerOf func(reconciler.Item) string) *queues {
	return &queues{
		hosts: newQueue(queue{workers: o.Settings.Workers, hanging: o.Settings.Workers * hangingPerWorker}),
		forge: newQueue(queue{workers: forgeWorkers, dropGone: true, ownerOf: ownerOf}),
		plans: newQueue(queue{workers: planWorkers, dropGone: true, maxTries: maxPlanTries, ownerOf: ownerOf}),
		artifacts: newQueue(queue{
			workers: artifactWorkers, hanging: artifactWorkers * hangingPerWorker, ofTenant: artifactWorkers / 2,
		}),
		log: o.Log, now: o.Now, metrics: o.Metrics, watch: o.Hooks.Watch,
	}
}

func (q *queues) all() []*queue { return []*queue{q.hosts, q.forge, q.plans, q.artifacts} }

// add enqueues an item. It never blocks.
func (q *queues) add(i reconciler.Item) { q.addAfter(i, 0) }

// addAfter enqueues an item after a delay.
func (q *queues) addAfter(i reconciler.Item, delay time.Duration) {
	if t, ok := q.tasks[i.Task]; ok {
		t.queue.AddAfter(i, delay)
	}
}

// addUnit enqueues a unit.
func (q *queues) addUnit(key schema.Key) {
	q.add(reconciler.Item{Task: reconciler.TaskUnit, Unit: key})
}

// shutDown ends the queues: no item is taken any more.
func (q *queues) shutDown() {
	for _, one := range q.all() {
		one.ShutDown()
	}
}

// run works until ctx ends, and waits for the items that are being reconciled.
func (q *queues) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, q.shutDown)
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, one := range q.all() {
		if one.hanging == 0 {
			wg.Go(func() { one.serve(ctx, q.reconcile) })
			continue
		}
		p := &pool{queue: one, workers: one.workers, maxHanging: one.hanging, perTenant: one.ofTenant, do: q.reconcile}
		wg.Go(func() { p.run(ctx) })
	}
}

// serve runs the items of a queue with its workers until the queue is shut down.
func (q *queue) serve(ctx context.Context, do func(context.Context, reconciler.Item)) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for range q.workers {
		wg.Go(func() {
			for item, down := q.Get(); !down; item, down = q.Get() {
				do(ctx, item)
				q.Done(item)
			}
		})
	}
}

// reconcile runs the handler of an item and schedules the next run by its result.
func (q *queues) reconcile(ctx context.Context, item reconciler.Item) {
	if ctx.Err() != nil {
		return
	}
	t, start, done := q.tasks[item.Task], q.now(), false
	if q.watch != nil {
		ended := q.watch(item)
		defer func() { ended(done) }()
	}
	again, err := t.run.recovered(ctx, item)
	q.metrics.reconciled(item.Task, q.now().Sub(start), err)
	if ctx.Err() == nil {
		done = q.schedule(t.queue, item, again, err)
	}
}

// recovered runs a handler. A panic is an error of this item and ends no other.
func (h handler) recovered(ctx context.Context, item reconciler.Item) (again time.Duration, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return h(ctx, item)
}

// schedule enqueues an item again as its result requires. It returns true if the
// item needs no retry.
func (q *queues) schedule(of *queue, item reconciler.Item, again time.Duration, err error) (done bool) {
	var later *reconciler.RetryAfterError
	switch {
	case err == nil:
		of.Forget(item)
		if again > 0 {
			of.AddAfter(item, again)
		}
		return true
	case errors.As(err, &later):
		q.log.Info("rate limit reached; reconciliation postponed", "item", item.String(), "until", later.At, "error", err)
		of.AddAfter(item, max(time.Second, later.At.Sub(q.now())))
	case errors.Is(err, reconciler.ErrHeadMoved):
		of.Forget(item)
		of.AddAfter(item, headMovedRetry)
	case of.dropGone && errors.Is(err, reconciler.ErrNotFound), of.maxTries > 0 && of.NumRequeues(item) >= of.maxTries:
		q.log.Warn("reconciliation given up until the next poll or webhook", "item", item.String(), "error", err)
		of.Forget(item)
		return true
	default:
		q.log.Warn("reconciliation failed; retry scheduled", "item", item.String(), "error", err)
		of.AddRateLimited(item)
	}
	return false
}
