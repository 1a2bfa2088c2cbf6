package loop

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/util/workqueue"

	"berth/reconciler"
	"berth/schema"
)

// poolLoad is a set of items that return to their queue 5 s after each reconciliation.
// Items named "hang…" take 20 s, the others 100 ms.
type poolLoad struct {
	mu         sync.Mutex
	queue      workqueue.TypedRateLimitingInterface[reconciler.Item]
	busy, most int
	ended      map[reconciler.Item]time.Time
	gap        map[reconciler.Item]time.Duration // longest time between the ends of two reconciliations
	twice      []reconciler.Item                 // reconciled by two workers at a time
	underWay   map[reconciler.Item]bool
}

// do takes the time of a reconciliation, in a bubble.
func (l *poolLoad) do(ctx context.Context, item reconciler.Item) {
	l.mu.Lock()
	l.busy++
	l.most = max(l.most, l.busy)
	if l.underWay[item] {
		l.twice = append(l.twice, item)
	}
	l.underWay[item] = true
	l.mu.Unlock()
	took := 100 * time.Millisecond
	if strings.HasPrefix(item.Unit.Name, "hang") {
		took = observeTimeout
	}
	select {
	case <-time.After(took):
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy--
	l.underWay[item] = false
	now := time.Now()
	l.gap[item] = max(l.gap[item], now.Sub(l.ended[item]))
	l.ended[item] = now
	l.queue.AddAfter(item, 5*time.Second)
}

// longest returns the longest gap since the last call for items with a prefix or tasks
// of that name. It includes reconciliations in progress.
func (l *poolLoad) longest(prefix string) (longest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for item, end := range l.ended {
		if strings.HasPrefix(cmp.Or(item.Unit.Name, string(item.Task)), prefix) {
			longest = max(longest, l.gap[item], time.Since(end))
			l.gap[item] = 0
		}
	}
	return longest
}

// Requirement E9: with 500 hanging units the pool stays bounded. After each hanging
// unit was met once, the other units are observed without delay. New commits are
// decided at once, and the stop waits for no unit.
func TestHangingItemsDoNotDelayOthers(t *testing.T) {
	const workers, hanging, healthy = 4, 500, 40
	synctest.Test(t, func(t *testing.T) {
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconciler.Item]())
		load := &poolLoad{queue: queue, ended: map[reconciler.Item]time.Time{}, gap: map[reconciler.Item]time.Duration{},
			underWay: map[reconciler.Item]bool{}}
		p := &pool{queue: queue, workers: workers, maxHanging: workers * hangingPerWorker, do: load.do}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		stop := func() {
			cancel()
			queue.ShutDown()
			<-ended
		}
		defer stop()
		add := func(item reconciler.Item) {
			load.ended[item] = time.Now()
			queue.Add(item)
		}
		for i := range hanging {
			add(reconciler.Item{Task: reconciler.TaskUnit, Unit: schema.InstanceKey("t", "p", fmt.Sprint("hang-", i))})
		}
		for i := range healthy {
			add(reconciler.Item{Task: reconciler.TaskUnit, Unit: schema.InstanceKey("t", "p", fmt.Sprint("well-", i))})
		}
		add(reconciler.Item{Task: reconciler.TaskEstate})
		go func() { p.run(ctx); close(ended) }()

		// Each hanging unit occupies a worker once, for two seconds.
		meeting := hanging / workers * slow
		time.Sleep(meeting + 2*observeTimeout)
		require.LessOrEqual(t, load.longest("well-"), meeting+10*time.Second)
		require.LessOrEqual(t, load.longest("estate"), 6*time.Second, "no commit waits for a unit")
		require.LessOrEqual(t, load.longest("hang-"), meeting+2*observeTimeout, "each hanging unit reconciled")

		time.Sleep(time.Hour)
		require.LessOrEqual(t, load.longest("well-"), 7*time.Second)
		require.LessOrEqual(t, load.longest("estate"), 6*time.Second)
		round := time.Duration(hanging/workers*hangingPerWorker*3/4) * observeTimeout
		require.LessOrEqual(t, load.longest("hang-"), round+2*observeTimeout, "hanging units reconciled in turn")
		require.LessOrEqual(t, load.most, workers+2*workers*hangingPerWorker+1)
		require.Greater(t, load.most, workers*hangingPerWorker, "the test does not load the pool")
		require.Empty(t, load.twice, "two workers reconciled one item at a time")

		stopping := time.Now()
		stop()
		require.Zero(t, time.Since(stopping))
		require.Zero(t, load.busy)
	})
}

// However many units of one tenant wait, another tenant's is reconciled at the next turn.
func TestTenantsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconciler.Item]())
		var order []string // the pool has one worker
		p := &pool{queue: queue, workers: 1, maxHanging: hangingPerWorker, do: func(_ context.Context, i reconciler.Item) {
			time.Sleep(100 * time.Millisecond)
			order = append(order, i.Unit.Tenant)
		}}
		for i := range 1000 {
			queue.Add(reconciler.Item{Task: reconciler.TaskUnit, Unit: schema.InstanceKey("large", "p", fmt.Sprint(i))})
		}
		queue.Add(reconciler.Item{Task: reconciler.TaskUnit, Unit: schema.InstanceKey("small", "p", "one")})
		ended := make(chan struct{})
		go func() { p.run(t.Context()); close(ended) }()
		time.Sleep(time.Second)
		require.Contains(t, order[:3], "small")
		queue.ShutDown()
		<-ended
	})
}

// Items that wait for their record wait together, and need no worker for that. They work with the
// same few workers as before.
func TestItemsWaitWithoutWorker(t *testing.T) {
	const workers, items = 2, 2 * outsidePerWorker * 3 / 4 // the share of a tenant
	synctest.Test(t, func(t *testing.T) {
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconciler.Item]())
		var mu sync.Mutex
		counts := map[string][2]int{} // at work or outside: now, and at most
		count := func(what string, by int) {
			mu.Lock()
			defer mu.Unlock()
			c := counts[what]
			counts[what] = [2]int{c[0] + by, max(c[1], c[0]+by)}
		}
		work := func() {
			count("work", 1)
			time.Sleep(time.Millisecond)
			count("work", -1)
		}
		p := &pool{queue: queue, workers: workers, maxHanging: workers * hangingPerWorker,
			do: func(ctx context.Context, _ reconciler.Item) {
				work()
				require.NoError(t, withoutWorker(ctx, func() error {
					count("outside", 1)
					defer count("outside", -1)
					time.Sleep(slow + time.Second)
					return nil
				}))
				work()
			}}
		for i := range items {
			queue.Add(reconciler.Item{Task: reconciler.TaskUnit, Unit: schema.InstanceKey("t", "p", fmt.Sprint(i))})
		}
		began := time.Now()
		queue.ShutDown()
		p.run(t.Context())
		require.LessOrEqual(t, time.Since(began), slow+2*time.Second)
		require.Equal(t, map[string][2]int{"work": {0, workers}, "outside": {0, items}}, counts)
		require.Zero(t, p.outside+p.prompt.aside)
		require.Empty(t, p.wasSlow, "who waits is not slow")
	})
}

// A unit that hung is reconciled like the others once it answers again.
func TestRecoveredItemIsServedNormally(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconciler.Item]())
		took := 3 * time.Second
		p := &pool{queue: queue, workers: 1, maxHanging: hangingPerWorker, do: func(context.Context, reconciler.Item) { time.Sleep(took) }}
		ended := make(chan struct{})
		go func() { p.run(t.Context()); close(ended) }()
		item := reconciler.Item{Task: reconciler.TaskUnit, Unit: schema.InstanceKey("t", "p", "i")}
		isSlow := func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.wasSlow[item]
		}
		queue.Add(item)
		time.Sleep(4 * time.Second)
		require.True(t, isSlow())
		took = time.Second
		queue.Add(item)
		time.Sleep(2 * time.Second)
		require.False(t, isSlow())
		require.Empty(t, p.wasSlow)
		queue.ShutDown()
		<-ended
	})
}

// Slow items, such as large deployments, are bounded as well.
func TestPoolBoundsSlowItems(t *testing.T) {
	const workers = 2
	synctest.Test(t, func(t *testing.T) {
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconciler.Item]())
		var busy, most atomic.Int64
		p := &pool{queue: queue, workers: workers, maxHanging: workers * hangingPerWorker, do: func(context.Context, reconciler.Item) {
			most.Store(max(most.Load(), busy.Add(1)))
			defer busy.Add(-1)
			time.Sleep(10 * time.Minute)
		}}
		for i := range 10 * workers * hangingPerWorker {
			queue.Add(reconciler.Item{Task: reconciler.TaskUnit, Unit: schema.InstanceKey(fmt.Sprint("t", i%40), "p", fmt.Sprint(i))})
		}
		ended := make(chan struct{})
		go func() { p.run(t.Context()); close(ended) }()
		time.Sleep(5 * time.Minute)
		require.EqualValues(t, workers+workers*hangingPerWorker, most.Load())
		queue.ShutDown()
		<-ended
		require.Zero(t, busy.Load())
	})
}

// While as many items of a tenant wait without a worker as may, no further one of it starts: it could not wait without one.
// Items of another tenant start, up to three quarters of the places that are left.
func TestItemsThatCouldNotWaitDoNotStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers, most = 2, 2 * outsidePerWorker
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconciler.Item]())
		recorded := make(chan struct{})
		var ran atomic.Int64
		p := &pool{queue: queue, workers: workers, maxHanging: workers * hangingPerWorker, do: func(ctx context.Context, _ reconciler.Item) {
			require.NoError(t, withoutWorker(ctx, func() error { <-recorded; return nil }))
			ran.Add(1)
		}}
		fill := func(tenant string) {
			for i := range most {
				queue.Add(reconciler.Item{Task: reconciler.TaskUnit, Unit: schema.InstanceKey(tenant, "p", fmt.Sprint(i))})
			}
			synctest.Wait()
		}
		ended := make(chan struct{})
		go func() { p.run(t.Context()); close(ended) }()
		fill("large")
		require.InDelta(t, most*3/4, p.outside, workers-1, "those that run may still leave")
		require.Zero(t, p.prompt.busy, "no worker waits")
		fill("other")
		require.InDelta(t, most*15/16, p.outside, 2*(workers-1))
		require.Zero(t, p.prompt.busy)
		queue.ShutDown()
		close(recorded)
		<-ended
		require.EqualValues(t, 2*most, ran.Load())
		require.Empty(t, p.outsideOf)
		require.Empty(t, p.prompt.running)
	})
}

// Many units of one tenant that come back from the wait for their records do not delay the unit of
// another tenant by more than a turn.
func TestReturningItemsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconciler.Item]())
		var order []string // the pool has one worker
		items, recorded := outsidePerWorker*3/4, make(chan struct{})
		p := &pool{queue: queue, workers: 1, maxHanging: hangingPerWorker, do: func(ctx context.Context, i reconciler.Item) {
			if i.Unit.Tenant == "large" {
				require.NoError(t, withoutWorker(ctx, func() error { <-recorded; return nil }))
			}
			time.Sleep(time.Second)
			order = append(order, i.Unit.Tenant)
		}}
		for i := range items {
			queue.Add(reconciler.Item{Task: reconciler.TaskUnit, Unit: schema.InstanceKey("large", "p", fmt.Sprint(i))})
		}
		ended := make(chan struct{})
		go func() { p.run(t.Context()); close(ended) }()
		synctest.Wait()
		require.Equal(t, items, p.outside)
		close(recorded)
		synctest.Wait()
		queue.Add(reconciler.Item{Task: reconciler.TaskUnit, Unit: schema.InstanceKey("small", "p", "one")})
		queue.ShutDown()
		<-ended
		require.Contains(t, order[:3], "small")
		require.Len(t, order, items+1)
	})
}

// Requirement E9: 10,000 changed units of one tenant, or of each of two, delay those of 20 others little: 99 of 100 of these are
// reconciled after at most twice the time that they need without them, whatever their units wait for. The units take their time
// in a bubble.
func TestLargeTenantDoesNotDelayOthers(t *testing.T) {
	const others, each = 20, 5
	record := func(ctx context.Context) { // the next commit of berth/status has the records of all who wait
		_ = withoutWorker(ctx, func() error {
			now := time.Now()
			time.Sleep(now.Truncate(time.Second).Add(time.Second).Sub(now))
			return nil
		})
	}
	quick := func(ctx context.Context) {
		time.Sleep(20 * time.Millisecond)
		record(ctx)
		time.Sleep(20 * time.Millisecond)
	}
	for name, large := range map[string]func(context.Context){
		"units that wait for their records": quick,
		"slow units":                        func(context.Context) { time.Sleep(10 * time.Minute) },
		"slow units after their records": func(ctx context.Context) {
			record(ctx)
			time.Sleep(10 * time.Minute)
		},
	} {
		// took returns how long the units of the others took, which change while 10,000 units of each large tenant are reconciled.
		took := func(t *testing.T, tenants int) (all []time.Duration) {
			synctest.Test(t, func(t *testing.T) {
				queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconciler.Item]())
				var mu sync.Mutex
				var changed time.Time
				ctx, cancel := context.WithCancel(t.Context())
				p := &pool{queue: queue, workers: 4, maxHanging: 4 * hangingPerWorker, do: func(ctx context.Context, i reconciler.Item) {
					switch {
					case ctx.Err() != nil:
					case strings.HasPrefix(i.Unit.Tenant, "large"):
						large(ctx)
					default:
						quick(ctx)
						mu.Lock()
						defer mu.Unlock()
						all = append(all, time.Since(changed))
					}
				}}
				ended := make(chan struct{})
				go func() { p.run(ctx); close(ended) }()
				change := func(tenant string, n int) {
					for i := range n {
						queue.Add(reconciler.Item{Task: reconciler.TaskUnit, Unit: schema.InstanceKey(tenant, "p", fmt.Sprint(i))})
					}
				}
				for i := range tenants {
					change(fmt.Sprint("large-", i), 10_000)
				}
				time.Sleep(30 * time.Second)
				changed = time.Now()
				for i := range others {
					change(fmt.Sprint("other-", i), each)
				}
				time.Sleep(time.Minute)
				cancel()
				queue.ShutDown()
				<-ended
			})
			require.Len(t, all, others*each)
			slices.Sort(all)
			return all
		}
		t.Run(name, func(t *testing.T) {
			alone := took(t, 0)
			for _, tenants := range []int{1, 2} {
				beside := took(t, tenants)
				for _, percent := range []int{50, 99} {
					at := others * each * percent / 100
					t.Logf("%d %%: %s alone, %s beside %d", percent, alone[at], beside[at], tenants)
					require.LessOrEqual(t, beside[at], 2*alone[at])
				}
			}
		})
	}
}

// Requirement E9: 10,000 pull requests of one author, or as many roll-outs of one tenant, delay those of 20 others little: 99 of
// 100 of these are done after at most twice the time that they need without it.
func TestLargeAuthorDelaysFewOthers(t *testing.T) {
	const others, each = 20, 5
	for name, of := range map[string]func(*queues) *queue{
		"plans": func(q *queues) *queue { return q.plans }, "the forge": func(q *queues) *queue { return q.forge },
	} {
		took := func(t *testing.T, large int) (all []time.Duration) {
			synctest.Test(t, func(t *testing.T) {
				o := Options{}.withDefaults()
				q := newQueues(&o, func(i reconciler.Item) string {
					if i.Pull > large {
						return fmt.Sprint("other-", i.Pull%others)
					}
					return "large"
				})
				for _, one := range q.all() {
					defer one.ShutDown()
				}
				queue, ended := of(q), make(chan struct{})
				ctx, cancel := context.WithCancel(t.Context())
				var mu sync.Mutex
				var changed time.Time
				go func() {
					queue.serve(ctx, func(ctx context.Context, i reconciler.Item) {
						if ctx.Err() != nil {
							return
						}
						time.Sleep(100 * time.Millisecond)
						mu.Lock()
						defer mu.Unlock()
						if i.Pull > large {
							all = append(all, time.Since(changed))
						}
					})
					close(ended)
				}()
				change := func(from, n int) {
					for i := range n {
						queue.Add(reconciler.Item{Task: reconciler.TaskPull, Pull: from + i})
					}
				}
				change(1, large)
				time.Sleep(time.Second)
				changed = time.Now()
				change(large+1, others*each)
				time.Sleep(time.Minute)
				cancel()
				queue.ShutDown()
				<-ended
			})
			require.Len(t, all, others*each)
			slices.Sort(all)
			return all
		}
		t.Run(name, func(t *testing.T) {
			alone, beside := took(t, 0), took(t, 10_000)
			at := others * each * 99 / 100
			require.LessOrEqual(t, beside[at], 2*alone[at])
		})
	}
}
