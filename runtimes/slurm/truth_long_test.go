//go:build long

package slurm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/examples/await"
	"berth/examples/explore"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// Environment variables of TestLongTruth, which `make truth` sets.
const (
	truthSeed    = "BERTH_TRUTH_SEED"    // of all random choices; default: that of explore
	truthChanges = "BERTH_TRUTH_CHANGES" // how many; default 20
)

// TestLongTruth makes random changes on a busy cluster and compares what each plan predicts
// with what happens: daemons that restart, nodes that drain, and jobs that end. No job is
// lost of which the plan did not say so.
func TestLongTruth(t *testing.T) {
	number := func(variable string, otherwise int) int {
		if text := os.Getenv(variable); text != "" {
			n, err := strconv.Atoi(text)
			require.NoError(t, err, variable)
			return n
		}
		return otherwise
	}
	t.Parallel()
	seed, changes := number(truthSeed, int(explore.Seed(t))), number(truthChanges, explore.Count(5, 20))
	r := newTruth(t, uint64(seed))
	began := time.Now()
	var wrong, lost int
	for i := 1; i <= changes; i++ {
		row := r.change(t)
		wrong, lost = wrong+min(1, len(row.wrong)), lost+row.lost
		t.Logf("%3d %s", i, row)
		if row.stuck {
			t.Fatalf("change %d of seed %d is not done after %v:\n%s", i, seed, truthPatience, strings.Join(row.wrong, "\n"))
		}
	}
	t.Logf("Slurm %s, seed %d: %d changes in %.0f s, %d as predicted, %d jobs submitted, %d lost", r.version, seed, changes,
		time.Since(began).Seconds(), changes-wrong, r.submitted, lost)
	require.Zero(t, lost, "jobs lost")
	require.Zero(t, wrong, "changes other than predicted")
}

// truthPatience is how long a change may take, besides the jobs that it waits for.
const truthPatience = await.Limit

// truth is a cluster with the state that is declared for it.
type truth struct {
	*company
	recorder  *recorder
	rng       *rand.Rand
	want      declared
	unit      plan.Unit // as declared last
	submitted int
	// kept is the prediction of the last stop of the cluster. Its jobs are compared after the start.
	kept *prediction
	// shapes of jobs that people submit, and what submits them.
	shapes []shape
	sender *shapeSender
}

func newTruth(t *testing.T, seed uint64) *truth {
	t.Helper()
	r := &truth{company: &company{stage: newStage(t)}, rng: rand.New(rand.NewPCG(seed, 0))}
	r.recorder = &recorder{inner: r.hosts}
	r.recorder.reset()
	r.rt = slurm.New(slurm.Options{Hosts: r.recorder})
	r.want = declared{
		Partitions: []truthPartition{{Name: "main", Default: true}}, Interval: 5, users: []schema.UnixUser{alice, bob},
		workers: []truthWorker{{0, 2, 4000}, {1, 2, 4000}},
	}
	r.unit = r.declare()
	r.carry(t, r.unit, false)
	r.newShapes(t)
	return r
}

// declared has the documents of the cluster.
type declared struct {
	Partitions []truthPartition
	Interval   int
	users      []schema.UnixUser
	workers    []truthWorker
	stopped    bool
	cancel     int // seconds of on_jobs; 0: wait
}

type truthPartition struct {
	Name    string `json:"name"`
	MaxTime int    `json:"max_time_minutes,omitempty"`
	Default bool   `json:"default,omitempty"`
}

// truthWorker is a worker on the host of that index.
type truthWorker struct{ host, gpus, memory int }

// declare returns the unit of the declared state.
func (r *truth) declare() plan.Unit {
	config, err := json.Marshal(map[string]any{
		"partitions": r.want.Partitions, "scheduler": map[string]int{"interval_seconds": r.want.Interval}, "identity": "managed",
	})
	if err != nil {
		panic(err)
	}
	var onJobs *schema.OnJobs
	if r.want.cancel > 0 {
		onJobs = &schema.OnJobs{CancelAfterSeconds: r.want.cancel}
	}
	var hosts []int
	for _, w := range r.want.workers {
		hosts = append(hosts, w.host)
	}
	u := r.company.unit(string(config), slices.Clone(r.want.users), onJobs, hosts...)
	for i, w := range r.want.workers {
		m := &u.Members[i+1]
		m.Name, m.MemoryMiB = fmt.Sprintf("worker-%d", w.host), w.memory
		m.GPUs = []schema.GPU{{Type: "a100", Count: w.gpus, Devices: map[int]string{1: "/dev/nvidia0", 2: "/dev/nvidia[0-1]"}[w.gpus]}}
	}
	if r.want.stopped {
		u.Effective.DesiredState = schema.DesiredStopped
	}
	return u
}

// mutation changes the declared cluster and returns its name; "": it does not apply here.
type mutation func(d *declared, rng *rand.Rand) string

// mutations are the changes from which the test draws. A change in the list twice is drawn twice as often.
var mutations = []mutation{
	addWorker, addWorker, removeWorker, removeWorker, addPartition, addPartition, removePartition, removePartition, renamePartition,
	limitPartition, defaultPartition, addUser, addUser, removeUser, removeUser, setInterval, setOnJobs, setOnJobs, setGPUs, setMemory,
}

func addWorker(d *declared, rng *rand.Rand) string {
	for _, h := range rng.Perm(3) {
		if !slices.ContainsFunc(d.workers, func(w truthWorker) bool { return w.host == h }) {
			d.workers = append(slices.Clone(d.workers), truthWorker{h, 2, 4000})
			slices.SortFunc(d.workers, func(a, b truthWorker) int { return a.host - b.host })
			return fmt.Sprintf("worker +gpu-%d", h+1)
		}
	}
	return ""
}

func removeWorker(d *declared, rng *rand.Rand) string {
	if len(d.workers) == 1 {
		return ""
	}
	i := rng.IntN(len(d.workers))
	name := fmt.Sprintf("worker -gpu-%d", d.workers[i].host+1)
	d.workers = slices.Delete(slices.Clone(d.workers), i, i+1)
	return name
}

// freePartition returns a name that no declared partition has; "": all are taken.
func (d *declared) freePartition(rng *rand.Rand) string {
	names := []string{"main", "quick", "long", "debug"}
	names = slices.DeleteFunc(names, func(n string) bool {
		return slices.ContainsFunc(d.Partitions, func(p truthPartition) bool { return p.Name == n })
	})
	if len(names) == 0 {
		return ""
	}
	return names[rng.IntN(len(names))]
}

func addPartition(d *declared, rng *rand.Rand) string {
	name := d.freePartition(rng)
	if name == "" {
		return ""
	}
	d.Partitions = append(slices.Clone(d.Partitions), truthPartition{Name: name, MaxTime: 60})
	return "partition +" + name
}

func removePartition(d *declared, rng *rand.Rand) string {
	if len(d.Partitions) == 1 {
		return ""
	}
	i := rng.IntN(len(d.Partitions))
	gone := d.Partitions[i]
	d.Partitions = slices.Delete(slices.Clone(d.Partitions), i, i+1)
	d.Partitions[0].Default = d.Partitions[0].Default || gone.Default
	return "partition -" + gone.Name
}

func renamePartition(d *declared, rng *rand.Rand) string {
	name := d.freePartition(rng)
	if name == "" {
		return ""
	}
	d.Partitions = slices.Clone(d.Partitions)
	p := &d.Partitions[rng.IntN(len(d.Partitions))]
	said := "partition " + p.Name + " is now " + name
	p.Name = name
	return said
}

func limitPartition(d *declared, rng *rand.Rand) string {
	d.Partitions = slices.Clone(d.Partitions)
	p := &d.Partitions[rng.IntN(len(d.Partitions))]
	limit := 60 + rng.IntN(600)
	p.MaxTime = limit
	return fmt.Sprintf("time of %s %d min", p.Name, limit)
}

func defaultPartition(d *declared, rng *rand.Rand) string {
	d.Partitions = slices.Clone(d.Partitions)
	i := rng.IntN(len(d.Partitions))
	if d.Partitions[i].Default {
		return ""
	}
	for k := range d.Partitions {
		d.Partitions[k].Default = k == i
	}
	return "default " + d.Partitions[i].Name
}

func addUser(d *declared, rng *rand.Rand) string {
	for _, n := range rng.Perm(4) {
		u := schema.UnixUser{Name: fmt.Sprintf("berthtest%d", n), UID: 42001 + n}
		if !slices.Contains(d.users, u) {
			d.users = append(slices.Clone(d.users), u)
			return "user +" + u.Name
		}
	}
	return ""
}

func removeUser(d *declared, rng *rand.Rand) string {
	if len(d.users) == 1 {
		return ""
	}
	i := rng.IntN(len(d.users))
	gone := d.users[i].Name
	d.users = slices.Delete(slices.Clone(d.users), i, i+1)
	return "user -" + gone
}

func setInterval(d *declared, rng *rand.Rand) string {
	d.Interval = 3 + rng.IntN(5)
	return fmt.Sprintf("interval %d s", d.Interval)
}

func setOnJobs(d *declared, _ *rand.Rand) string {
	if d.cancel = 2 - d.cancel; d.cancel > 0 {
		return "on_jobs cancel"
	}
	return "on_jobs wait"
}

func setGPUs(d *declared, rng *rand.Rand) string {
	d.workers = slices.Clone(d.workers)
	w := &d.workers[rng.IntN(len(d.workers))]
	w.gpus = 3 - w.gpus
	return fmt.Sprintf("gpu-%d has %d GPUs", w.host+1, w.gpus)
}

func setMemory(d *declared, rng *rand.Rand) string {
	d.workers = slices.Clone(d.workers)
	w := &d.workers[rng.IntN(len(d.workers))]
	w.memory = 7000 - w.memory
	return fmt.Sprintf("gpu-%d has %d MiB", w.host+1, w.memory)
}

// mutate draws the next change: a start after a stop, and otherwise a stop or up to three
// changes that are merged together.
func (r *truth) mutate() string {
	if r.want.stopped {
		r.want.stopped = false
		return "start"
	}
	if r.rng.IntN(14) == 0 {
		r.want.stopped = true
		return "stop"
	}
	count := []int{1, 1, 1, 1, 2, 3}[r.rng.IntN(6)]
	var names []string
	for len(names) < count {
		if name := mutations[r.rng.IntN(len(mutations))](&r.want, r.rng); name != "" {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// truthRow is a change with its predicted and its actual effects.
type truthRow struct {
	name         string
	restarts     int
	reconfigure  bool
	drains       []string
	jobs         int    // that were running or queued
	fates        string // of the jobs
	lost         int
	stuck        bool
	took         time.Duration
	wrong        []string // differences between plan and truth
	failed       []string // actions that were tried again
	withoutQueue bool     // the cluster is stopped
}

func (r *truthRow) String() string {
	how := "live"
	switch {
	case r.restarts > 0:
		how = fmt.Sprintf("%d restarts", r.restarts)
	case r.reconfigure:
		how = "reconfigure"
	}
	result := "as predicted"
	if len(r.wrong) > 0 {
		result = "NOT AS PREDICTED:\n\t" + strings.Join(r.wrong, "\n\t")
	}
	for _, failure := range r.failed {
		result += "\n\ttried again: " + failure
	}
	return fmt.Sprintf("%-62s %-11s drains %d  jobs %2d: %-46s lost %d %6.1f s  %s", r.name, how, len(r.drains), r.jobs, r.fates, r.lost,
		r.took.Seconds(), result)
}

// compare adds a difference between two lists of names.
func (r *truthRow) compare(what string, predicted, actual []string) {
	slices.Sort(predicted)
	slices.Sort(actual)
	if !slices.Equal(predicted, actual) {
		r.wrong = append(r.wrong, fmt.Sprintf("%s: predicted %v, actual %v", what, predicted, actual))
	}
}

// change keeps the cluster busy, declares a change, and brings the cluster to it.
func (r *truth) change(t *testing.T) *truthRow {
	t.Helper()
	wasStopped := r.want.stopped
	if !wasStopped {
		r.occupy(t)
	}
	row := &truthRow{name: r.mutate(), withoutQueue: r.want.stopped}
	before := r.unit
	r.unit = r.declare()

	daemons := r.daemons(t, before)
	r.recorder.reset()
	predicted := r.kept
	if r.kept = nil; predicted == nil {
		predicted = &prediction{jobs: r.queued(t, r.unit)}
	}
	p := r.plan(t, r.unit, false)
	if !wasStopped {
		predicted.plan = p
	}
	if n := r.recorder.effects(); n > 0 {
		row.wrong = append(row.wrong, fmt.Sprintf("%d writes by an observation", n))
	}
	began := time.Now()
	failed, err := r.bring(t, predicted)
	if row.failed = failed; err != nil {
		row.stuck, row.wrong = true, append(row.wrong, err.Error())
	}
	row.took = time.Since(began)
	r.compareDaemons(t, row, p, daemons)
	row.drains = r.recorder.drained()
	row.compare("drains", drainsOf(p), row.drains)
	if row.withoutQueue {
		r.kept, row.fates = predicted, "after the start"
		return row
	}
	r.compareJobs(t, row, predicted)
	r.compareNodes(t, row)
	return row
}

// actionsOf returns all actions of a plan, with those that wait for max_unavailable.
func actionsOf(p plan.Plan) []plan.Action { return slices.Concat(p.Actions, p.Later) }

func drainsOf(p plan.Plan) []string {
	var nodes []string
	for _, a := range actionsOf(p) {
		nodes = append(nodes, a.Impact.Drains...)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// bring applies plans until nothing is left to do, and returns the errors of actions. It ends
// the jobs for which the plan said that it waits, and no other.
func (r *truth) bring(t *testing.T, said *prediction) (failed []string, err error) {
	t.Helper()
	for began := time.Now(); time.Since(began) < truthPatience; { // the moment at which the change counts as not done
		p := r.plan(t, r.unit, false)
		if p.Empty() {
			return failed, nil
		}
		errs, waits := r.run(t, p)
		failed = append(failed, errs...)
		if waits {
			r.finishWaited(t, said)
		}
		time.Sleep(300 * time.Millisecond) // the pace of the looks
	}
	p := r.plan(t, r.unit, false)
	return failed, fmt.Errorf("still to do: %v %v", verbs(p), p.Blocked)
}

// run applies a plan as the daemon does: an action whose needs are not done is left, and one
// that comes after a waiting one is not.
func (r *truth) run(t *testing.T, p plan.Plan) (failed []string, waits bool) {
	t.Helper()
	result := map[string]error{}
	for _, a := range p.Actions {
		ready := !slices.ContainsFunc(slices.Concat(a.Needs, a.After), func(id string) bool {
			err, done := result[id]
			return !done || err != nil && !(errors.Is(err, runtimes.ErrWaiting) && slices.Contains(a.After, id))
		})
		if !ready {
			continue
		}
		r.attempt++
		id := a.ID
		a.ID = fmt.Sprintf("%s.%d", a.ID, r.attempt)
		stamp := runtimes.Stamp{Epoch: 1, CorrelationID: "truth", ActionID: a.ID, Verb: string(a.Verb)}
		err := r.rt.Apply(t.Context(), runtimes.Change{Plan: &p, Action: a, Stamp: stamp})
		result[id] = err
		switch {
		case errors.Is(err, runtimes.ErrWaiting):
			waits = true
		case err != nil:
			failed = append(failed, fmt.Sprintf("%s %s: %v", a.Verb, a.Member, err))
		}
	}
	return failed, waits
}

// compareNodes checks that no node is drained, down, or allocated without a job.
func (r *truth) compareNodes(t *testing.T, row *truthRow) {
	t.Helper()
	bad := ""
	for deadline := time.Now().Add(await.Limit); time.Now().Before(deadline); time.Sleep(500 * time.Millisecond) { // the pace of the looks
		bad = ""
		out := r.tool(t, r.unit, "scontrol -o show nodes")
		for _, w := range r.want.workers {
			name := r.workers[w.host].Key.Name
			i := strings.Index(out, "NodeName="+name+" ")
			if i < 0 {
				bad += name + " is missing; "
				continue
			}
			line, _, _ := strings.Cut(out[i:], "\n")
			state, _, _ := strings.Cut(line[strings.Index(line, " State=")+len(" State="):], " ")
			state = strings.TrimSuffix(state, "+PLANNED") // a job that waits is to start there
			idle := strings.Contains(line, "CPUAlloc=0 ")
			if !slices.Contains([]string{"IDLE", "MIXED", "ALLOCATED"}, state) || idle != (state == "IDLE") {
				bad += name + " is " + state + "; "
			}
		}
		if bad == "" {
			return
		}
	}
	row.wrong = append(row.wrong, "nodes: "+bad)
}

// daemons returns the process of each service of a unit, by "service on node".
func (r *truth) daemons(t *testing.T, u plan.Unit) map[string]int {
	t.Helper()
	out := map[string]int{}
	for name, pid := range r.services(t, u) {
		words := strings.Fields(name)
		out[words[1]+" on "+words[0]] = pid
	}
	return out
}

// compareDaemons compares the restarts that a plan predicted with the processes before and
// after it. Members that leave or join are left out, and so are all at a stop. Where a
// reconfigure restarts Slurm's daemons, the calls of Berth count for them.
func (r *truth) compareDaemons(t *testing.T, row *truthRow, p plan.Plan, before map[string]int) {
	t.Helper()
	moved := map[string]bool{}
	var predicted []string
	for _, a := range actionsOf(p) {
		if a.Verb == plan.Leave || a.Verb == plan.Join {
			moved[a.Node] = true
		}
		row.reconfigure = row.reconfigure || a.Impact.Reconfigure
		predicted = append(predicted, a.Impact.Restarts...)
	}
	if row.withoutQueue {
		row.compare("restarts", predicted, nil)
		return
	}
	anew := r.version.Reexecutes() && (row.reconfigure || slices.Contains(predicted, profile.Slurmctld))
	var actual []string
	for name, pid := range r.daemons(t, r.unit) {
		service, node, _ := strings.Cut(name, " on ")
		was, known := before[name]
		switch {
		case moved[node], !known, was == pid:
		case was == 0 && service == profile.MungedWorker, was == 0 && service == profile.Munged, was == 0 && service == profile.Slurmdbd:
			// They start with the daemon that needs them.
		case was == 0 && service == profile.Slurmctld:
			actual = append(actual, "control plane")
		case anew && (service == profile.Slurmctld || service == profile.Slurmd) && !r.recorder.restarted(service, node):
		case service == profile.Slurmctld || service == profile.Slurmdbd:
			actual = append(actual, service)
		default:
			actual = append(actual, name)
		}
	}
	row.restarts = len(actual)
	row.compare("restarts", predicted, actual)
	if n := r.recorder.reconfigures(); n > 0 && !row.reconfigure && len(predicted) == 0 {
		row.wrong = append(row.wrong, fmt.Sprintf("%d reconfigures, none predicted", n))
	}
}

// recorder passes operations on and records those with an effect.
type recorder struct {
	inner runtimes.Hosts

	mu       sync.Mutex
	batches  int
	services map[string]bool // "verb service on node"
	drains   map[string]bool // nodes
	pushes   int             // calls of scontrol reconfigure
}

func (r *recorder) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.batches, r.pushes, r.services, r.drains = 0, 0, map[string]bool{}, map[string]bool{}
}

func (r *recorder) effects() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.batches
}

func (r *recorder) reconfigures() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pushes
}

// restarted reports whether Berth stopped or restarted a service.
func (r *recorder) restarted(service, node string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.services["restart "+service+" on "+node] || r.services["stop "+service+" on "+node]
}

func (r *recorder) drained() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.drains))
}

func (r *recorder) Host(m plan.Member) runtimes.Host { return recordingHost{r, r.inner.Host(m)} }

func (r *recorder) Close() error { return r.inner.Close() }

type recordingHost struct {
	r *recorder
	runtimes.Host
}

func (h recordingHost) Do(ctx context.Context, stamp runtimes.Stamp, ops ...runtimes.Op) ([]runtimes.Result, error) {
	if works(ops) {
		h.r.record(h.Name(), ops)
	}
	return h.Host.Do(ctx, stamp, ops...)
}

func (r *recorder) record(host string, ops []runtimes.Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.batches++
	for _, op := range ops {
		if s := op.Service; s != nil {
			r.services[s.Verb+" "+s.Name+" on "+host] = true
		}
		if op.Run == nil || op.Run.Program != "scontrol" {
			continue
		}
		if op.Run.Args[0] == "reconfigure" {
			r.pushes++
		}
		if slices.Contains(op.Run.Args, "state=drain") {
			for node := range strings.SplitSeq(strings.TrimPrefix(op.Run.Args[1], "nodename="), ",") {
				r.drains[node] = true
			}
		}
	}
}
