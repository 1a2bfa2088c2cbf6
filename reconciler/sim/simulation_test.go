package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/loop"
	"berth/reconciler/nodes"
	"berth/reconciler/plan"
	"berth/reconciler/status"
	"berth/runtimes"
	"berth/runtimes/memory"
	"berth/schema"
	"berth/schema/estate"
)

// definitions are compiled once. The loader keeps what it read, by content, over all schedules.
var definitions = sync.OnceValues(func() (*estate.Loader, error) {
	return estate.New(estate.Options{Backends: map[string]string{"bare_metal": "#Config: {...}\n#Parameters: {...}"}, Trees: 512})
})

// metrics are those of all daemons: nothing reads them.
var metrics = sync.OnceValue(func() *loop.Metrics { return loop.NewMetrics(nil) })

const (
	disturbed = 4 * time.Minute  // of virtual time with faults and merges
	healing   = 20 * time.Minute // within which the world converges after that (I9)
	interval  = 10 * time.Second
	quietFor  = 10 * interval
	lateWrite = 2 * time.Minute // within which the record of a repair is on berth/status: nothing waits for it
	mayFail   = 8               // one call in so many has a fault
)

// options are what is random in a schedule.
type options struct {
	seed   uint64
	isWide bool   // the estate has a rule, and the clocks of hosts are off
	asks   bool   // people ask for operations on members, in a wide estate
	holds  bool   // a rule and people hold units, in a wide estate
	plant  string // a fault of Berth that a test plants; "": none
}

// simulation is one schedule under way.
type simulation struct {
	options
	loader *estate.Loader

	mu         sync.Mutex
	remote     *remote
	world      *memory.World
	epochs     map[string]uint64 // highest of each host
	lost       map[string]bool   // hosts that cannot be reached
	applied    []effect
	counts     map[string]uint64 // calls by kind
	faults     map[string]int    // by kind
	received   map[string]bool   // webhooks by id
	mayEnd     map[string]bool   // holds that were released, or whose document is gone, by id
	calm       bool              // no more faults
	want       declared          // last merged
	daemons    []*daemon
	checker    checker
	trace      []string
	began      time.Time
	violations []string
}

// daemon is one process of Berth.
type daemon struct {
	name   string
	sim    *simulation
	loop   *loop.Reconciler
	cancel context.CancelFunc
	dead   atomic.Bool  // killed: no call has an effect any more
	ended  atomic.Bool  // its Run has returned
	epoch  uint64       // of its last commit of berth/status
	offset atomic.Int64 // of its clock
}

func (d *daemon) crash() {
	d.sim.tracef("%s: killed", d.name)
	d.sim.counts["crash"]++
	d.dead.Store(true)
	d.cancel()
}

func (d *daemon) isDead(ctx context.Context) bool { return d.dead.Load() || ctx.Err() != nil }

// draw returns the random numbers of the nth thing of a kind.
func (s *simulation) draw(kind string, n uint64) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(kind))
	return rand.New(rand.NewPCG(s.seed, h.Sum64()+n))
}

// count counts a thing of a kind. The caller has the lock.
func (s *simulation) count(kind string) uint64 {
	s.counts[kind]++
	return s.counts[kind]
}

// pause waits, in a bubble.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// call is the beginning of a call of a daemon: it takes some time, in a bubble, and draws the call's fault; "" is none.
func (s *simulation) call(ctx context.Context, d *daemon, kind string, faults ...string) string {
	s.mu.Lock()
	r := s.draw(kind, s.count(kind))
	fault := ""
	if r.IntN(mayFail) == 0 && !s.calm {
		fault = faults[r.IntN(len(faults))]
		s.faults[strings.Fields(kind)[0]+" "+fault]++
	}
	s.mu.Unlock()
	took := time.Duration(1+r.IntN(50)) * time.Millisecond
	if fault == "slow" {
		took = time.Duration(1+r.IntN(15)) * time.Second
	}
	pause(ctx, took)
	return fault
}

// tracef adds a line to the trace. The caller has the lock.
func (s *simulation) tracef(format string, a ...any) {
	s.trace = append(s.trace, fmt.Sprintf("%8.3f ", time.Since(s.began).Seconds())+fmt.Sprintf(format, a...))
}

// start starts a daemon without a memory of its own. The caller has the lock.
func (s *simulation) start() *daemon {
	d := &daemon{name: fmt.Sprint("daemon-", len(s.daemons)+1), sim: s}
	s.daemons = append(s.daemons, d)
	s.tracef("%s: started", d.name)
	d.loop = loop.New(loop.Options{
		Repo: &mirror{sim: s, daemon: d}, Decide: decide.Options{Loader: s.loader},
		Runtimes: map[string]runtimes.Runtime{
			"bare_metal": &hosts{Runtime: memory.New(s.world), sim: s, daemon: d, observed: map[schema.Key]plan.Presence{}}},
		Readers: loop.Readers{Nodes: s.world},
		Settings: loop.Settings{Interval: interval, Poll: 30 * time.Second, AuthorLag: time.Second, MaxAttempts: 1000,
			Heartbeat: 30 * time.Second},
		Hooks: loop.Hooks{Webhook: s.receive(d)}, Metrics: metrics(),
		Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return time.Now().Add(time.Duration(d.offset.Load())) },
	})
	ctx, cancel := context.WithCancel(context.Background())
	d.cancel = cancel
	go func() {
		err := d.loop.Run(ctx)
		d.ended.Store(true)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.tracef("%s: ended: %v", d.name, err)
		if err != nil && !d.dead.Load() && !errors.Is(err, status.ErrDeposed) {
			s.violate("I9", "%s ends by itself: %v", d.name, err)
		}
	}()
	return d
}

// leads reports whether a daemon runs. The caller has the lock.
func (s *simulation) leads() bool {
	return slices.ContainsFunc(s.daemons, func(d *daemon) bool { return !d.dead.Load() && !d.ended.Load() })
}

// run plays the schedule, in a bubble.
func (s *simulation) run() {
	s.began = time.Now()
	s.remote, s.world = newRemote(), memory.NewWorld()
	s.epochs, s.lost, s.counts, s.faults = map[string]uint64{}, map[string]bool{}, map[string]uint64{}, map[string]int{}
	s.checker, s.received, s.mayEnd = newChecker(), map[string]bool{}, map[string]bool{}
	s.mu.Lock()
	if s.want.isWide = s.isWide; s.isWide {
		s.setHostClocks()
		s.want.holds = s.holds
	}
	s.remote.merge(s.want.tree())
	s.start()
	s.mu.Unlock()
	defer s.stop()
	r := s.draw("program", 0)
	for time.Since(s.began) < disturbed {
		time.Sleep(time.Duration(1+r.IntN(12_000)) * time.Millisecond)
		s.mu.Lock()
		s.act(r)
		if s.holds {
			s.hold(r)
		}
		if s.plant == "unit lost" {
			_ = s.world.Lose(unitKey(r.IntN(instances))) // an error: it does not exist
		}
		s.check()
		s.mu.Unlock()
	}
	s.heal()
	s.converge()
}

// act is one thing that people or the world do. The caller has the lock.
func (s *simulation) act(r *rand.Rand) {
	kinds := 12
	if s.asks {
		kinds = 14
	}
	kind := []string{"merge", "merge", "merge", "merge", "kill", "second daemon", "node lost", "node lost", "node back", "node back",
		"clock jumps", "member ends", "operation", "operation"}[r.IntN(kinds)]
	unit, name, jump := r.IntN(instances), nodeNames()[r.IntN(1+workers)], time.Duration(r.IntN(1200)-600)*time.Second
	next := wish{exists: r.IntN(4) > 0, stopped: r.IntN(4) == 0, workers: r.IntN(3)}
	alive := s.daemons[len(s.daemons)-1]
	switch {
	case !s.leads():
		s.start()
	case kind == "merge":
		if !next.exists {
			next = wish{}
		}
		s.want.wishes[unit] = next
		if s.want.unit == unit && (s.want.verb != plan.Hold || !next.exists) {
			s.ask(operation{number: s.want.number})
		}
		s.tracef("merge: %s %+v: %s", unitKey(unit).Name, next, s.remote.merge(s.want.tree()))
	case kind == "operation":
		s.operate(r)
	case kind == "kill":
		alive.crash()
	case kind == "second daemon":
		s.start()
	case kind == "node lost", kind == "node back":
		s.setLost(name, kind == "node lost")
		s.tracef("%s: %s", kind, name)
	case kind == "clock jumps":
		alive.offset.Store(int64(jump))
		s.tracef("%s: the clock is off by %s", alive.name, jump)
	case kind == "member ends":
		if s.world.SetState(unitKey(unit), "controller-0", plan.Stopped) == nil {
			s.tracef("controller-0 of %s ends", unitKey(unit).Name)
		}
	}
	s.counts["step"]++
	s.faults[kind]++
}

// setLost cuts a host off, or connects it again. The caller has the lock.
func (s *simulation) setLost(node string, isLost bool) {
	s.lost[node] = isLost
	s.world.SetReachable(node, !isLost)
	s.world.SetResponds(node, !isLost)
}

// heal ends all faults and sees to it that a daemon runs.
func (s *simulation) heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calm = true
	s.tracef("faults end")
	for _, n := range nodeNames() {
		s.setLost(n, false)
	}
	for _, d := range s.daemons {
		d.offset.Store(0)
	}
	if !s.leads() {
		s.start()
	}
}

// converge waits, in a bubble, until the world is as main says, and then that nothing is written any more (I9).
func (s *simulation) converge() {
	healed := time.Now()
	var differs string
	for {
		s.mu.Lock()
		s.releaseAll()
		differs = s.difference()
		if !s.leads() {
			s.start() // the last one was deposed by another that had been killed
		}
		s.mu.Unlock()
		if differs == "" || time.Since(healed) > healing {
			break
		}
		time.Sleep(interval)
	}
	if differs != "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.violate("I9", "%s after the last fault: %s", healing, differs)
		return
	}
	s.awaitQuiet()
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.difference(); d != "" {
		s.violate("I9", "converged, and then: %s", d)
	}
}

// awaitQuiet waits, in a bubble, until no commit and no action comes for quietFor. The record of a repair may come until lateWrite.
func (s *simulation) awaitQuiet() {
	converged, since := time.Now(), time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	commits, effects := len(s.remote.batches), len(s.applied)
	for time.Since(since) < quietFor {
		s.mu.Unlock()
		time.Sleep(interval)
		s.mu.Lock()
		newCommits, newEffects := len(s.remote.batches)-commits, len(s.applied)-effects
		if newCommits+newEffects == 0 {
			continue
		}
		if commits, effects, since = commits+newCommits, effects+newEffects, time.Now(); since.Sub(converged) > lateWrite {
			s.violate("I9", "%d commits of berth/status and %d actions %s after the world became as main says; the last commit: %+v", newCommits,
				newEffects, since.Sub(converged), s.remote.batches[commits-1])
			return
		}
	}
}

// stop ends all daemons, in a bubble.
func (s *simulation) stop() {
	s.mu.Lock()
	daemons := slices.Clone(s.daemons)
	s.mu.Unlock()
	for _, d := range daemons {
		d.cancel()
		for !d.ended.Load() {
			time.Sleep(time.Second)
		}
	}
}

// difference returns how the world or its status differs from main; "" if it does not. The caller has the lock.
func (s *simulation) difference() string {
	if len(s.remote.statuses) == 0 {
		return "berth/status is empty"
	}
	tree := s.remote.statuses[len(s.remote.statuses)-1]
	if c := tree.Revision.Commit; c != last(s.remote.main) {
		return fmt.Sprintf("berth/status is of commit %s, main at %s, frozen %q", c, last(s.remote.main), tree.Revision.Frozen)
	}
	for _, n := range nodeNames() {
		if t := tree.Things[schema.Key{Kind: schema.KindNode, Name: n}]; t == nil || t.Phase != string(nodes.Ready) {
			return "node " + n + " should be ready"
		}
	}
	for i, w := range s.want.wishes {
		key := unitKey(i)
		st, remains := tree.Units.Get(key), s.world.Remains(key)
		if !w.exists {
			if st != nil && st.Phase != plan.PhaseDeleted || len(remains) > 0 {
				return fmt.Sprintf("%s should be gone: %v, status %s", key, remains, show(st))
			}
			continue
		}
		phase, state := plan.PhaseRunning, "running"
		if w.stopped {
			phase, state = plan.PhaseStopped, "stopped"
		}
		if st == nil || st.Phase != phase {
			return fmt.Sprintf("%s should be %s: status %s", key, phase, show(st))
		}
		ran := strings.Count(s.world.Fingerprint(key), "is "+state)
		members := 1 + w.workers
		if w.stopped {
			members = len(remains) - 1 // changes of a stopped unit wait until it is started
		}
		if len(remains) > 0 && (ran != members || len(remains) != 1+members) || len(remains) == 0 && !w.stopped {
			return fmt.Sprintf("%s should be %s with %d workers: %v, %s", key, state, w.workers, remains, s.world.Fingerprint(key))
		}
	}
	return cmp.Or(s.undone(), s.pending())
}

func show(st *plan.Status) string {
	if st == nil {
		return "none"
	}
	return fmt.Sprintf("%s (attempt %d, retry %+v, %v)", st.Phase, st.Attempt, st.Retry, st.Conditions)
}

var _ reconciler.Repo = (*mirror)(nil)
