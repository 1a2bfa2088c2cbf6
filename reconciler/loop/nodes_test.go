package loop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/loop"
	"berth/reconciler/nodes"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/schema"
	"berth/schema/event"
)

// observed makes a daemon observe the nodes of the memory world, with short limits.
func (w *world) observed(o *loop.Options) {
	o.Readers.Nodes = w.world
	o.Settings.Heartbeat = 10 * time.Millisecond
	o.Settings.NodeLimits = nodes.Limits{NotReady: 30 * time.Millisecond, Lost: 100 * time.Millisecond}
}

// node returns the status of a node on berth/status, or nil.
func (w *world) node(name string) *plan.ThingStatus {
	return w.tree().Things[schema.Key{Kind: schema.KindNode, Name: name}]
}

func (w *world) nodeIs(name string, state nodes.State) func() bool {
	return func() bool { s := w.node(name); return s != nil && s.Phase == string(state) }
}

// nodeEvents returns the transitions of a node, as the event log has them.
func (w *world) nodeEvents(name string) (out []string) {
	for _, e := range w.events() {
		var p event.Node
		if typ, ok := strings.CutPrefix(e.EventType, "berth.node."); ok {
			require.NoError(w.t, json.Unmarshal(e.Payload, &p))
			if p.ResourceName == name {
				require.Equal(w.t, typ, p.Status)
				require.NotContains(w.t, string(e.Payload), "10.9.0")
				out = append(out, p.PreviousStatus+" -> "+p.Status+" "+p.Reason)
			}
		}
	}
	return out
}

// A node is observed whether or not a unit uses it. Its states are on berth/status and in the event log, each transition once, also
// across a restart; silence of the host alone loses no node.
func TestNodeStatesAreRecordedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})
	m, counter := counters(t)
	d := w.start(w.observed, func(o *loop.Options) { o.Metrics = m })
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	for _, name := range []string{"ctl", "gpu-1", "gpu-4"} {
		w.eventually(name+" is ready", w.nodeIs(name, nodes.Ready))
		require.Equal(t, []string{"unknown -> ready HostAnswers"}, w.nodeEvents(name))
	}
	r := nodes.ReadRecord(w.node("gpu-4"))
	require.Equal(t, 2, *r.Found.GPUs)
	require.Equal(t, 4, r.Found.CPUs)
	require.Equal(t, "memory-gpu-4", r.Host.BootID)

	worker := w.status("train").Members[1].Node
	w.world.SetResponds(worker, false)
	observed := w.world.Calls("observe")
	w.eventually("the scheduler says that it is gone", func() bool { return w.world.Calls("observe") > observed+2 })
	w.world.SetReachable("gpu-4", false) // no unit uses it: nobody else says that it is gone
	w.world.SetReachable(worker, false)
	w.eventually("silence alone is unknown", w.nodeIs("gpu-4", nodes.Unknown))
	w.eventually("host and scheduler say that it is gone", w.nodeIs(worker, nodes.Lost))
	require.NoError(t, d.stop())
	require.Equal(t, map[string]float64{"not_ready": 2, "unknown": 1, "lost": 1}, counter("node_unhealthy_total"))
	w.start(w.observed)
	w.world.SetReachable("gpu-4", true)
	w.world.SetReachable(worker, true)
	w.eventually("back", w.nodeIs("gpu-4", nodes.Ready))
	w.eventually("back", w.nodeIs(worker, nodes.Ready))
	require.Equal(t, []string{"unknown -> ready HostAnswers", "ready -> not_ready HostSilent", "not_ready -> unknown HostSilent",
		"unknown -> ready HostAnswers"}, w.nodeEvents("gpu-4"))
	lost := w.nodeEvents(worker)
	require.Equal(t, "ready -> not_ready HostSilent", lost[1])
	require.Contains(t, lost, "lost -> ready HostAnswers", lost)
	w.noEventTwice()
}

// A new member waits while no node is ready, and is placed once one is.
func TestNewMemberWaitsForAReadyNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(w.observed)
	for _, name := range []string{"gpu-1", "gpu-2", "gpu-3", "gpu-4"} {
		w.eventually(name+" is ready", w.nodeIs(name, nodes.Ready))
		w.world.SetReachable(name, false)
		w.eventually(name+" is silent", func() bool { return w.node(name).Phase != plan.NodeReady })
	}
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})
	w.eventually("it waits", func() bool {
		s := w.status("train")
		return s != nil && slices.ContainsFunc(s.Conditions, func(c plan.Condition) bool {
			return strings.Contains(c.Message, "no node for worker-0") && strings.Contains(c.Message, "4 not ready")
		})
	})
	w.world.SetReachable("gpu-3", true)
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	require.Equal(t, "gpu-3", w.status("train").Members[1].Node)
}

// The status of a node is written when it says something new and once an hour, never for each heartbeat.
func TestHeartbeatsMakeNoCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var hours atomic.Int64
	var reads int64 // with the lock of the world
	w.world.SetFacts("gpu-1", func(f *runtimes.HostFacts) {
		reads++
		f.Disks = []runtimes.DiskFacts{{Path: "/", SizeMiB: (1000 + reads) << 10}}
	})
	w.world.SetFacts("gpu-2", func(f *runtimes.HostFacts) {
		reads++
		f.MemoryMiB -= 1 + int(reads%100) // less than declared, by another number each time
	})
	w.start(w.observed, func(o *loop.Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(hours.Load()) * time.Hour) }
	})
	for _, name := range []string{"ctl", "gpu-1", "gpu-2", "gpu-3", "gpu-4"} {
		w.eventually(name+" is ready", w.nodeIs(name, nodes.Ready))
	}
	w.eventually("the status of the commit", func() bool { return w.revision().Commit != "" })
	tip, beats := w.git.Tip("berth/status"), w.world.Calls("facts")
	w.eventually("100 heartbeats of each node", func() bool { return w.world.Calls("facts") > beats+500 })
	require.Equal(t, tip, w.git.Tip("berth/status"))
	require.True(t, w.node("gpu-2").Condition(plan.ConditionCapacityDiffers).Is(plan.ConditionTrue))
	before := nodes.ReadRecord(w.node("gpu-1"))
	answered := before.Answered
	hours.Store(2)
	w.eventually("the newer time of an answer", func() bool {
		return nodes.ReadRecord(w.node("gpu-1")).Answered.Sub(answered) >= time.Hour
	})
	require.Greater(t, nodes.ReadRecord(w.node("gpu-1")).Found.DiskGiB, before.Found.DiskGiB, "the numbers are refreshed, too")
	require.Len(t, w.nodeEvents("gpu-1"), 1)
}

// gatedHost is a reader of facts for which a node answers once, and then is silent after the gate has opened.
type gatedHost struct {
	runtimes.NodeReader
	node  string
	calls atomic.Int64
	asked chan struct{} // closed at the second call
	gate  chan struct{}
}

func (h *gatedHost) ReadFacts(ctx context.Context, n *schema.Node) (*runtimes.HostFacts, error) {
	if n.Key.Name != h.node {
		return h.NodeReader.ReadFacts(ctx, n)
	}
	call := h.calls.Add(1)
	if call == 1 {
		return h.NodeReader.ReadFacts(ctx, n)
	}
	if call == 2 {
		close(h.asked)
	}
	<-h.gate
	return nil, fmt.Errorf("host %s: %w", h.node, runtimes.ErrUnreachable)
}

// A transition during which another document comes into force is counted, and recorded by the next heartbeat.
func TestTransitionDuringADecisionIsCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m, counter := counters(t)
	h := &gatedHost{NodeReader: w.world, node: "gpu-4", asked: make(chan struct{}), gate: make(chan struct{})}
	w.start(w.observed, func(o *loop.Options) {
		o.Metrics, o.Readers.Nodes = m, h
		o.Settings.NodeLimits = nodes.Limits{NotReady: time.Nanosecond, Lost: 24 * time.Hour}
	})
	w.eventually("ready", w.nodeIs("gpu-4", nodes.Ready))
	<-h.asked
	const path = "platform/nodes/gpu-4.yaml"
	commit := w.put(map[string]string{path: strings.Replace(estateFiles()[path], "cpus: 4", "cpus: 3", 1)})
	w.eventually("in force", func() bool { return w.revision().Commit == commit })
	close(h.gate)
	w.eventually("not ready", w.nodeIs("gpu-4", nodes.NotReady))
	require.Equal(t, map[string]float64{"not_ready": 1}, counter("node_unhealthy_total"))
	require.Len(t, w.nodeEvents("gpu-4"), 2)
}

// The first contact compares the declared capacity with the facts; less than declared is a condition with numbers and no error.
func TestNodeWithLessThanDeclared(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.world.SetFacts("gpu-2", func(f *runtimes.HostFacts) {
		f.CPUs, f.Missing = 2, []string{"/dev/nvidia1"}
		f.Load, f.AvailableMiB, f.At = &runtimes.LoadFacts{One: 3.5}, 700, f.At.Add(2*time.Minute)
		f.Disks = []runtimes.DiskFacts{{Path: "/", SizeMiB: 100 << 10, FreeMiB: 7 << 10}}
	})
	w.start(w.observed)
	w.eventually("ready", w.nodeIs("gpu-2", nodes.Ready))
	c := w.node("gpu-2").Condition(plan.ConditionCapacityDiffers)
	require.True(t, c.Is(plan.ConditionTrue))
	require.Equal(t, "the host has 2 of 4 CPUs, no device file /dev/nvidia1; correct spec.capacity or the host", c.Message)
	clock := w.node("gpu-2").Condition(plan.ConditionClockDiffers)
	require.True(t, clock.Is(plan.ConditionTrue))
	require.Contains(t, clock.Message, " ahead of the daemon's")
	m := nodes.ReadRecord(w.node("gpu-2")).Measured
	require.InDelta(t, 120_000, m.ClockOffset, 60_000)
	m.ClockOffset = 0
	require.Equal(t, &nodes.Measured{Load: new(3.5), AvailableMiB: 700, Disks: []nodes.Disk{{Path: "/", SizeGiB: 100, FreeGiB: 7}}}, m)
	w.world.SetFacts("gpu-2", nil)
	w.eventually("as declared", func() bool { return w.node("gpu-2").Condition(plan.ConditionCapacityDiffers).Is(plan.ConditionFalse) })
	w.eventually("in time", func() bool { return w.node("gpu-2").Condition(plan.ConditionClockDiffers).Is(plan.ConditionFalse) })
	require.Len(t, w.nodeEvents("gpu-2"), 1)
}

// suspendingReader is a reader of facts in a daemon that is suspended between the answer of gpu-2 and its reading.
type suspendingReader struct {
	runtimes.NodeReader
	gap *atomic.Int64
}

func (h suspendingReader) ReadFacts(ctx context.Context, n *schema.Node) (*runtimes.HostFacts, error) {
	facts, err := h.NodeReader.ReadFacts(ctx, n)
	if n.Key.Name == "gpu-2" {
		h.gap.Store(int64(time.Hour))
	}
	return facts, err
}

// An answer that is read late says nothing about the clock of its host.
func TestSuspendedDaemonBlamesNoClock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var gap atomic.Int64
	w.start(w.observed, func(o *loop.Options) {
		o.Readers.Nodes, o.Settings.Heartbeat = suspendingReader{w.world, &gap}, 24*time.Hour
		o.Now = func() time.Time { return time.Now().Add(time.Duration(gap.Load())) }
	})
	w.eventually("ready", w.nodeIs("gpu-2", nodes.Ready))
	require.False(t, w.node("gpu-2").Condition(plan.ConditionClockDiffers).Is(plan.ConditionTrue))
}

// A node without a document has no status.
func TestRemovedNodeHasNoStatus(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(w.observed)
	w.eventually("ready", w.nodeIs("gpu-3", nodes.Ready))
	w.put(nil, "platform/nodes/gpu-3.yaml")
	w.eventually("gone", func() bool { return w.node("gpu-3") == nil && w.node("gpu-4") != nil })
}

// hangingHosts is a reader of facts that never answers for some nodes.
type hangingHosts struct {
	runtimes.NodeReader
	mu    sync.Mutex
	nodes map[string]bool
}

func (h *hangingHosts) ReadFacts(ctx context.Context, n *schema.Node) (*runtimes.HostFacts, error) {
	h.mu.Lock()
	hangs := h.nodes[n.Key.Name]
	h.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return nil, fmt.Errorf("host %s: %w: %w", n.Key.Name, runtimes.ErrUnreachable, ctx.Err())
	}
	return h.NodeReader.ReadFacts(ctx, n)
}

// failingHost is a reader of facts with the same error for a node each time.
type failingHost struct {
	runtimes.NodeReader
	node string
	err  error
}

func (h failingHost) ReadFacts(ctx context.Context, n *schema.Node) (*runtimes.HostFacts, error) {
	if n.Key.Name == h.node {
		return nil, fmt.Errorf("host %s: %w", h.node, h.err)
	}
	return h.NodeReader.ReadFacts(ctx, n)
}

// A host with an outdated helper answers: it is not silent, and the condition says what to install.
func TestOutdatedHelperIsNoSilence(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(w.observed, func(o *loop.Options) {
		o.Readers.Nodes = failingHost{w.world, "gpu-2", &runtimes.HelperError{Message: "install the berth-host of the daemon's release"}}
	})
	w.eventually("not ready", w.nodeIs("gpu-2", nodes.NotReady))
	require.Equal(t, []string{"unknown -> not_ready AnswerUnusable"}, w.nodeEvents("gpu-2"))
	require.Contains(t, w.node("gpu-2").Condition(plan.ConditionReady).Message, "install the berth-host")
}

// A host that hangs, and one that never answered, delays no other.
func TestHangingHostDelaysNoOtherNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := &hangingHosts{NodeReader: w.world, nodes: map[string]bool{"gpu-1": true, "gpu-2": true}}
	w.start(w.observed, func(o *loop.Options) { o.Readers.Nodes, o.Settings.Heartbeat = h, 24*time.Hour })
	for _, name := range []string{"ctl", "gpu-3", "gpu-4"} {
		w.eventually(name+" is ready", w.nodeIs(name, nodes.Ready))
	}
	require.Nil(t, w.node("gpu-1"))
}
