package loop

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"berth/reconciler"
	"berth/reconciler/nodes"
	"berth/reconciler/plan"
	"berth/reconciler/rules"
	"berth/runtimes"
	"berth/schema"
)

const (
	// nodeSlots is how many hosts that answered last time are read at a time.
	nodeSlots = 64
	// silentSlots is how many other hosts are read at a time. They have slots of their own and delay no host that answers.
	silentSlots = 64
	// nodeTimeout bounds the reading of one host.
	nodeTimeout = 10 * time.Second
	// nodeRefresh is the time after which the status of a node is written again although its state is the same.
	nodeRefresh = time.Hour
)

// nodeObserver reads the facts of the host of each node in force at each heartbeat, keeps the newest facts, and records the states
// of nodes on berth/status (requirements E3, E5).
type nodeObserver struct {
	*recorder
	inForce   *inForce
	reader    runtimes.NodeReader // nil: no node is observed
	views     *nodeViews
	metrics   *Metrics
	heartbeat time.Duration
	limits    nodes.Limits
	slots     chan struct{}
	silent    chan struct{}

	mu    sync.Mutex
	known map[string]*knownNode
}

// knownNode is what this daemon knows of a node.
type knownNode struct {
	status  nodes.Status
	facts   *runtimes.HostFacts // newest; nil: none since the start
	offset  time.Duration       // of the host's clock; that of facts
	message string              // why the last observation failed; "": it did not
	written time.Time           // when its status was recorded last
	busy    bool                // an observation waits or is under way

	recorded *plan.ThingStatus // the status that record was read from: a heartbeat that says nothing new decodes none
	record   nodes.Record
}

// recordOf returns the record of the status of the node. The caller must not change what it points to.
func (n *knownNode) recordOf(s *plan.ThingStatus) nodes.Record {
	if n.recorded != s {
		n.recorded, n.record = s, nodes.ReadRecord(s)
	}
	return n.record
}

func newNodeObserver(o *Options, r *recorder, f *inForce) *nodeObserver {
	return &nodeObserver{
		recorder: r, inForce: f, reader: o.Readers.Nodes, views: newNodeViews(), metrics: o.Metrics, heartbeat: o.Settings.Heartbeat,
		limits: o.Settings.NodeLimits, slots: make(chan struct{}, nodeSlots), silent: make(chan struct{}, silentSlots),
		known: map[string]*knownNode{},
	}
}

// run observes the nodes until ctx ends.
func (o *nodeObserver) run(ctx context.Context) {
	if o.reader == nil {
		return
	}
	select {
	case <-o.inForce.ready:
	case <-ctx.Done():
		return
	}
	tick := time.NewTicker(o.heartbeat)
	defer tick.Stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	for ctx.Err() == nil {
		o.beat(ctx, &wg)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// beat begins an observation of each node in force that is not being observed, and forgets the others.
func (o *nodeObserver) beat(ctx context.Context, wg *sync.WaitGroup) {
	st := o.inForce.current()
	if st == nil {
		return
	}
	o.forget(st)
	for _, name := range slices.Sorted(maps.Keys(st.Effective.Nodes)) {
		if slots := o.begin(name); slots != nil {
			wg.Go(func() {
				defer o.end(name)
				select {
				case slots <- struct{}{}:
					defer func() { <-slots }()
					o.observe(ctx, name)
				case <-ctx.Done():
				}
			})
		}
	}
}

// begin marks a node as being observed, and returns the slots for it; nil: it is being observed already.
func (o *nodeObserver) begin(name string) chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.known[name]
	if n == nil {
		n = &knownNode{}
		s := o.recorder.status.Resource(nodeKey(name))
		n.status = nodes.Restore(s, n.recordOf(s))
		o.known[name] = n
	}
	if n.busy {
		return nil
	}
	n.busy = true
	if n.message != "" {
		return o.silent
	}
	return o.slots
}

func (o *nodeObserver) end(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := o.known[name]; n != nil {
		n.busy = false
	}
}

// forget removes the nodes that are not in force any more, with their statuses.
func (o *nodeObserver) forget(st *reconciler.State) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.known, func(name string, _ *knownNode) bool { return st.Effective.Nodes[name] == nil })
	for _, s := range o.status.ResourcesOf(schema.KindNode) {
		if st.Effective.Nodes[s.Key.Name] == nil {
			o.status.RemoveResource(s) // a newer status is removed at the next heartbeat
		}
	}
}

// observe reads the facts of a node's host once, and records what follows.
func (o *nodeObserver) observe(ctx context.Context, name string) {
	st := o.inForce.current()
	n := st.Effective.Nodes[name]
	if n == nil {
		return
	}
	limited, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	begun := o.now()
	facts, err := o.reader.ReadFacts(limited, n)
	now := o.now()
	if ctx.Err() != nil {
		return // the daemon stops: a host that was not asked is not silent
	}
	seen := nodes.Observation{Scheduler: o.views.of(name), Answer: nodes.Usable}
	switch {
	case err == nil:
	case runtimes.IsAnswer(err):
		seen.Answer = nodes.Unusable
	default:
		seen.Answer = nodes.Silent
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	known := o.known[name]
	if known == nil {
		return // the node is not in force any more
	}
	var transition *nodes.Transition
	known.status, transition = nodes.Next(known.status, seen, now, o.limits)
	took := now.Round(0).Sub(begun.Round(0))                   // by the wall clock, as that of the host
	isTimely := err == nil && took >= 0 && took <= nodeTimeout // else the daemon was suspended, or its clock set, meanwhile
	known.message = ""
	switch {
	case err != nil:
		known.message = err.Error()
	case isTimely:
		known.facts, known.offset = facts, facts.At.Sub(begun.Add(took/2))
	}
	if transition != nil { // it is told once, also if the status is recorded by a later heartbeat
		o.metrics.nodeChanged(transition.To)
		o.logTransition(n, known, transition)
	}
	o.record(st, n, known, transition)
	var measured *nodes.Measured // nil: no timely answer
	if isTimely {
		measured = measuredOf(known.facts, known.offset)
	}
	o.status.Sample(name, st.Main, rules.Values(measured), now)
}

// record records the status of a node if it says something new, and refreshes it once in nodeRefresh. It is called with the lock.
func (o *nodeObserver) record(st *reconciler.State, n *schema.Node, known *knownNode, t *nodes.Transition) {
	o.status.Decision.RLock()
	defer o.status.Decision.RUnlock()
	if now := o.inForce.current(); now.Effective.Nodes[n.Key.Name] != n {
		return // a decision came between; the next heartbeat records it
	}
	prev := o.status.Resource(n.Key)
	was := known.recordOf(prev)
	next, record := nodeStatus(prev, was, n, known, st.Main)
	isDue := !known.written.IsZero() && o.now().Sub(known.written) >= nodeRefresh
	if prev != nil && t == nil && !isDue && was.Region == record.Region && isSameNode(prev, &next) {
		if known.written.IsZero() {
			known.written = o.now() // by an earlier daemon
		}
		return
	}
	next.Detail = encodeRecord(record)
	if _, ok := o.status.SetResource(prev, next); ok {
		known.written = o.now()
		known.recorded, known.record = o.status.Resource(n.Key), record
		if wasReady := prev == nil || prev.Phase == plan.NodeReady; wasReady != (next.Phase == plan.NodeReady) {
			o.queues.add(reconciler.Item{Task: reconciler.TaskPlace})
		}
	}
	o.warn(n, prev, &next)
}

// warn logs the conditions of a node that became true, and a capacity that differs in another way.
func (o *nodeObserver) warn(n *schema.Node, prev, next *plan.ThingStatus) {
	before, after := prev.Condition(plan.ConditionCapacityDiffers), next.Condition(plan.ConditionCapacityDiffers)
	if after.Is(plan.ConditionTrue) && (before == nil || before.Message != after.Message) {
		o.nodeLog(n, next).Warn("node has less than declared", "message", after.Message)
	}
	if c := next.Condition(plan.ConditionClockDiffers); c.Is(plan.ConditionTrue) &&
		!prev.Condition(plan.ConditionClockDiffers).Is(plan.ConditionTrue) {
		o.nodeLog(n, next).Warn("clock of a node differs", "message", c.Message)
	}
}

// logTransition logs a change of a node's state.
func (o *nodeObserver) logTransition(n *schema.Node, known *knownNode, t *nodes.Transition) {
	log := o.log.With("node", n.Key.Name, "from", string(t.From), "to", string(t.To), "reason", string(t.Reason))
	if t.To == nodes.Ready {
		log.Info("node is ready")
		return
	}
	log.Warn("node changed its state", "error", known.message)
}

func (o *nodeObserver) nodeLog(n *schema.Node, s *plan.ThingStatus) *slog.Logger {
	return o.log.With("node", n.Key.Name, "correlation_id", s.CorrelationID)
}

func nodeKey(name string) schema.Key { return schema.Key{Kind: schema.KindNode, Name: name} }

// nodeStatus returns the status of a node after one with the record was, and the record that its detail is to hold. main is the
// commit in force: the first status keeps it.
func nodeStatus(prev *plan.ThingStatus, was nodes.Record, n *schema.Node, known *knownNode, main string) (plan.ThingStatus,
	nodes.Record) {
	s := plan.ThingStatus{APIVersion: schema.APIVersion, Kind: string(schema.KindNode) + "Status", Key: n.Key, UID: n.UID,
		Phase: string(known.status.State), Revision: main}
	if prev != nil && prev.Revision != "" {
		s.Revision = prev.Revision
	}
	s.CorrelationID = reconciler.CorrelationID(s.Revision)
	ready := nodes.Condition(known.status, known.message)
	if c := prev.Condition(plan.ConditionReady); c != nil && c.Reason == ready.Reason && ready.Message != "" {
		ready.Message = c.Message // the first error of a state: each attempt may have another text
	}
	r := nodes.Record{Transitions: known.status.Transitions, Previous: was.Previous, Region: n.Spec.Region,
		Since: wholeSeconds(known.status.Since), Answered: wholeSeconds(known.status.Answered),
		Silence: int64(known.status.Silence / time.Second),
		Found:   was.Found, Host: was.Host, Measured: was.Measured}
	if r.Transitions != was.Transitions {
		r.Previous = nodes.Unknown
		if prev != nil {
			r.Previous = nodes.State(prev.Phase)
		}
	}
	if f := known.facts; f != nil {
		r.Found = foundOf(f)
		r.Host = &nodes.Host{Kernel: f.Kernel, BootID: f.BootID, Helper: f.Version, Protocol: f.Protocol}
		r.Measured = measuredOf(f, known.offset)
	}
	if r.Found != nil {
		s.Conditions = append(s.Conditions, nodes.CapacityCondition(n.Spec.Capacity, *r.Found))
	}
	if r.Measured != nil {
		s.Conditions = append(s.Conditions, nodes.ClockCondition(prev.Condition(plan.ConditionClockDiffers), *r.Measured))
	}
	s.Conditions = append(s.Conditions, ready)
	return s, r
}

// encodeRecord returns a record as the detail of a status.
func encodeRecord(r nodes.Record) json.RawMessage {
	data, err := json.Marshal(r)
	if err == nil {
		data, err = schema.CanonicalJSON(data)
	}
	if err != nil {
		panic(err) // strings, numbers and times only
	}
	return data
}

// wholeSeconds returns a time as a status has it.
func wholeSeconds(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// foundOf returns the capacity that facts describe.
func foundOf(f *runtimes.HostFacts) *nodes.Found {
	found := &nodes.Found{CPUs: f.CPUs, MemoryMiB: f.MemoryMiB, GPUs: f.GPUs, GPUModels: f.GPUModels, Missing: f.Missing}
	for _, d := range f.Disks {
		found.DiskGiB = max(found.DiskGiB, int(d.SizeMiB>>10))
	}
	return found
}

// measuredOf returns what facts measure, of a host whose clock is ahead by offset.
func measuredOf(f *runtimes.HostFacts, offset time.Duration) *nodes.Measured {
	m := &nodes.Measured{AvailableMiB: f.AvailableMiB, ClockOffset: offset.Milliseconds()}
	if f.Load != nil {
		m.Load = &f.Load.One
	}
	for _, d := range f.Disks {
		m.Disks = append(m.Disks, nodes.Disk{Path: d.Path, SizeGiB: d.SizeMiB >> 10, FreeGiB: d.FreeMiB >> 10})
	}
	return m
}

// isSameNode reports whether two statuses of a node say the same, apart from numbers, texts and their records: those of a host may
// change with each answer, and are written once in nodeRefresh.
func isSameNode(a, b *plan.ThingStatus) bool {
	isSame := func(x, y plan.Condition) bool {
		return x.Type == y.Type && x.Status == y.Status && x.Reason == y.Reason
	}
	return a.Phase == b.Phase && a.UID == b.UID && slices.EqualFunc(a.Conditions, b.Conditions, isSame)
}
