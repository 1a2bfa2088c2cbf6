package memory

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/schema"
	"berth/schema/parallel"
	"berth/schema/usage"
)

// World has the units and the scripted faults. It outlives a Runtime as real hosts
// outlive a daemon. It is safe for concurrent use.
type World struct {
	mu      sync.Mutex
	changes perUnit
	dir     string // with a file for each unit; empty: kept in memory only
	units   map[schema.Key]*unit
	down    map[string]bool     // unreachable nodes
	silent  map[string]bool     // nodes that do not respond to the schedulers
	left    map[string][]string // remains of abandoned members, by node
	facts   map[string]func(*runtimes.HostFacts)
	foreign map[string]string // conflicts on nodes with something that Berth did not make
	calls   map[string]int
	script  []fault
}

// perUnit serializes the changes of one unit. Units are saved at the same time, as hosts work beside each other. Its lock is taken
// before World.mu.
type perUnit struct{ locks sync.Map } // schema.Key → *sync.Mutex

func (p *perUnit) lock(key schema.Key) (unlock func()) {
	l, _ := p.locks.LoadOrStore(key, &sync.Mutex{})
	l.(*sync.Mutex).Lock()
	return l.(*sync.Mutex).Unlock
}

// unit is the state of a unit on its hosts.
type unit struct {
	Applied  plan.Unit              `json:"applied"`
	Complete bool                   `json:"complete"`
	Members  map[string]memberState `json:"members"` // those that exist, by name
	Drift    []plan.Drift           `json:"drift,omitempty"`
	Jobs     plan.Jobs              `json:"jobs"`
	Used     []usage.Job            `json:"used,omitempty"` // what ended jobs used
	Queue    []job                  `json:"queue,omitempty"`
	Done     []string               `json:"done,omitempty"` // ids of the operations that were done
	Clock    time.Time              `json:"clock,omitzero"` // of accounting; zero: it does not answer
}

type memberState struct {
	Node   string     `json:"node"`
	State  plan.State `json:"state"`
	Epoch  uint64     `json:"epoch"`  // of the leader that changed it last
	Leader string     `json:"leader"` // its identity
	Starts int        `json:"starts"` // number of starts

	// why the member takes no new jobs: drainMark and an operation, or words of a person
	Drained string            `json:"drained,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
}

// fault is a scripted fault of a step.
type fault struct {
	in  int // number of steps until then
	err error
}

// NewWorld returns an empty world.
func NewWorld() *World {
	return &World{units: map[schema.Key]*unit{}, down: map[string]bool{}, silent: map[string]bool{}, left: map[string][]string{},
		facts: map[string]func(*runtimes.HostFacts){}, foreign: map[string]string{}, calls: map[string]int{}}
}

// OpenWorld returns the world in dir and makes dir if necessary. Each step is saved
// before the next one, so a killed process leaves the same state as on real hosts.
func OpenWorld(dir string) (*World, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open world: %w", err)
	}
	w := NewWorld()
	w.dir = dir
	files, err := filepath.Glob(filepath.Join(dir, "*"+unitSuffix))
	if err != nil {
		return nil, fmt.Errorf("open world: %w", err)
	}
	units := make([]*unit, len(files))
	if err := parallel.Each(len(files), func(i int) error {
		raw, err := os.ReadFile(files[i])
		if err != nil {
			return fmt.Errorf("open world: %w", err)
		}
		units[i] = &unit{}
		if err := json.Unmarshal(raw, units[i]); err != nil {
			return fmt.Errorf("open world: cannot read the unit in %s: %w; remove %s, and Berth makes the simulated instances again",
				files[i], err, dir)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	for _, u := range units {
		w.units[u.Applied.Effective.Key] = u
	}
	return w, nil
}

const unitSuffix = ".json"

// UnitFile is the name of the file of a unit in the directory of a world.
func UnitFile(key schema.Key) string { return url.PathEscape(key.String()) + unitSuffix }

// save writes the file of a unit, or removes it for nil. The work of a step is that of one unit, however many there are.
func (w *World) save(key schema.Key, u *unit) error {
	if w.dir == "" {
		return nil
	}
	file := filepath.Join(w.dir, UnitFile(key))
	if u == nil {
		if err := os.Remove(file); err != nil {
			return fmt.Errorf("save world: %w", err)
		}
		return nil
	}
	raw, err := json.Marshal(u)
	if err != nil {
		return fmt.Errorf("save world: %w", err)
	}
	f, err := os.CreateTemp(w.dir, "unit-*")
	if err != nil {
		return fmt.Errorf("save world: %w", err)
	}
	_, err = f.Write(raw)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return fmt.Errorf("save world: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

// Calls returns the number of calls of "observe" or a verb.
func (w *World) Calls(what string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[what]
}

// TotalCalls returns the number of all calls.
func (w *World) TotalCalls() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, c := range w.calls {
		n += c
	}
	return n
}

// SetReachable makes a node unreachable, or reachable again.
func (w *World) SetReachable(node string, reachable bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down[node] = !reachable
}

// preflight refuses a member on a node with a conflict.
func (w *World) preflight(node string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if left := w.left[node]; len(left) > 0 {
		return fmt.Errorf("host %s: found %v: %w", node, left, runtimes.ErrForeign)
	}
	if what := w.foreign[node]; what != "" {
		return fmt.Errorf("host %s: found %s: %w", node, what, runtimes.ErrForeign)
	}
	return nil
}

// FailStep makes the nth step (1: the next) fail with err before its effect. Further
// calls add faults; n = 0 removes all of them.
func (w *World) FailStep(n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n == 0 {
		w.script = nil
		return
	}
	w.script = append(w.script, fault{n, err})
}

// SetState sets the state of an existing member, as a crash or a person would.
func (w *World) SetState(key schema.Key, member string, state plan.State) error {
	return w.change(key, func(u *unit) error {
		m, ok := u.Members[member]
		if !ok {
			return fmt.Errorf("%s has no member %s", key, member)
		}
		m.State = state
		u.Members[member] = m
		return nil
	})
}

// SetDrained drains a member, as a person would; "" takes a drain back.
func (w *World) SetDrained(key schema.Key, member, reason string) error {
	return w.change(key, func(u *unit) error {
		m, ok := u.Members[member]
		if !ok {
			return fmt.Errorf("%s has no member %s", key, member)
		}
		m.Drained = reason
		u.Members[member] = m
		return nil
	})
}

// Member describes what operations did to a member: its drain and its labels.
func (w *World) Member(key schema.Key, member string) (drained string, labels map[string]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if u := w.units[key]; u != nil {
		return u.Members[member].Drained, maps.Clone(u.Members[member].Labels)
	}
	return "", nil
}

// SetDrift sets the drift of a unit.
func (w *World) SetDrift(key schema.Key, drift ...plan.Drift) error {
	return w.change(key, func(u *unit) error { u.Drift = drift; return nil })
}

// SetJobs sets the jobs of a unit.
func (w *World) SetJobs(key schema.Key, jobs plan.Jobs) error {
	return w.change(key, func(u *unit) error { u.Jobs = jobs; return nil })
}

// SetUsage sets what jobs of a unit used. A job without an end runs, since today.
func (w *World) SetUsage(key schema.Key, jobs ...usage.Job) error {
	return w.change(key, func(u *unit) error { u.Used = jobs; return nil })
}

// EndJob ends a job of a unit with this output.
func (w *World) EndJob(key schema.Key, id string, output []byte) error {
	return w.change(key, func(u *unit) error {
		u.Queue = slices.Clone(u.Queue)
		for i := range u.Queue {
			if j := &u.Queue[i]; j.JobID == id {
				j.State, j.Ended, j.ExitCode, j.Output = "COMPLETED", time.Now().UTC().Truncate(time.Second), "0:0", output
				return nil
			}
		}
		return fmt.Errorf("%s has no job %s", key, id)
	})
}

// SetClock sets the clock of a unit's accounting, which has added up all days before it.
func (w *World) SetClock(key schema.Key, at time.Time) error {
	return w.change(key, func(u *unit) error { u.Clock = at; return nil })
}

func (w *World) clock(key schema.Key) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if u := w.units[key]; u != nil {
		return u.Clock
	}
	return time.Time{}
}

func (w *World) used(key schema.Key) []usage.Job {
	w.mu.Lock()
	defer w.mu.Unlock()
	if u := w.units[key]; u != nil {
		return slices.Clone(u.Used)
	}
	return nil
}

// Lose takes all of a unit away, as a host that is made empty does.
func (w *World) Lose(key schema.Key) error {
	defer w.changes.lock(key)()
	return w.replace(key, w.unit(key), nil)
}

func (w *World) change(key schema.Key, f func(*unit) error) error {
	defer w.changes.lock(key)()
	before := w.unit(key)
	if before == nil {
		return fmt.Errorf("%s does not exist", key)
	}
	u := before.clone()
	if err := f(u); err != nil {
		return err
	}
	return w.replace(key, before, u)
}

func (w *World) unit(key schema.Key) *unit {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.units[key]
}

// replace replaces a unit with u, or removes it for nil; before is nil if there was none. If saving fails, the unit is unchanged. The
// caller holds the lock of the unit.
func (w *World) replace(key schema.Key, before, u *unit) error {
	if before == nil && u == nil {
		return nil
	}
	if err := w.save(key, u); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.units[key] = u; u == nil {
		delete(w.units, key)
	}
	return nil
}

// clone copies all that may change.
func (u *unit) clone() *unit {
	c := *u
	c.Applied, c.Members, c.Done = cloneUnit(u.Applied), maps.Clone(u.Members), slices.Clone(u.Done)
	return &c
}

// Fingerprint describes the members of a unit with their number of starts. It stays
// equal if nothing was changed.
func (w *World) Fingerprint(key schema.Key) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	u := w.units[key]
	if u == nil {
		return "absent"
	}
	var s string
	for _, name := range slices.Sorted(maps.Keys(u.Members)) {
		m := u.Members[name]
		s += fmt.Sprintf("%s on %s is %s after %d starts\n", name, m.Node, m.State, m.Starts)
	}
	return s
}

// Remains lists the leftovers of a unit.
func (w *World) Remains(key schema.Key) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	u := w.units[key]
	if u == nil {
		return nil
	}
	left := []string{"record of " + key.String()}
	for _, name := range slices.Sorted(maps.Keys(u.Members)) {
		left = append(left, name+" on "+u.Members[name].Node)
	}
	return left
}

// step is an operation on a node. It has its effect unless a scripted fault, the state
// of the node or the save prevents it. A unit exists as long as its record names it:
// an effect without a record makes no unit, and one that empties the record removes it.
func (w *World) step(stamp runtimes.Stamp, key schema.Key, node, what string, effect func(*unit)) error {
	defer w.changes.lock(key)()
	if err := w.allows(node, what); err != nil {
		return err
	}
	before, u := w.unit(key), &unit{Members: map[string]memberState{}}
	if before != nil {
		u = before.clone()
	}
	for _, m := range u.Members {
		if m.Node != node {
			continue
		}
		if m.Epoch > stamp.Epoch {
			return fmt.Errorf("host %s: %s: epoch %d after %d: %w", node, what, stamp.Epoch, m.Epoch, runtimes.ErrStaleEpoch)
		}
		if m.Epoch == stamp.Epoch && m.Leader != "" && m.Leader != stamp.Leader {
			return fmt.Errorf("host %s: %s: epoch %d belongs to another leader: %w", node, what, stamp.Epoch, runtimes.ErrStaleEpoch)
		}
	}
	effect(u)
	if u.Applied.Effective.Key != key {
		u = nil
	}
	return w.replace(key, before, u)
}

// allows returns the error of an operation that a scripted fault or the state of its node prevents.
func (w *World) allows(node, what string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.script {
		w.script[i].in--
		if w.script[i].in == 0 {
			err := w.script[i].err
			w.script = slices.Delete(w.script, i, i+1)
			return fmt.Errorf("host %s: operation %s: %w", node, what, err)
		}
	}
	if w.down[node] {
		return fmt.Errorf("host %s: operation %s: %w", node, what, runtimes.ErrUnreachable)
	}
	return nil
}
