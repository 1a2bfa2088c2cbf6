package slurm

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// runtimeState is what status shows of the cluster beyond what every runtime
// has. It holds nothing that changes with the jobs.
type runtimeState struct {
	Cluster    string      `json:"cluster"`
	Controller string      `json:"controller"`
	Conf       string      `json:"conf"` // SLURM_CONF for people on the controller
	Ports      ports       `json:"ports"`
	Version    string      `json:"version,omitempty"`
	Nodes      []nodeState `json:"nodes,omitempty"` // by name
}

type nodeState struct {
	Name    string `json:"name"`
	CPUs    int    `json:"cpus"`
	Memory  int    `json:"memory_mib"`
	Gres    string `json:"gres,omitempty"`
	Drained string `json:"drained,omitempty"` // why
}

// Observe implements runtimes.Runtime. It costs two round trips to the control
// host and one to each worker, at once.
func (r *Runtime) Observe(ctx context.Context, s runtimes.Scope) plan.Observed {
	obs := plan.Observed{Key: s.Key, Presence: plan.Unknown}
	found, err := r.find(ctx, s)
	switch {
	case err != nil:
		obs.Reason = err.Error()
		return obs
	case found == nil:
		obs.Presence = plan.Absent
		return obs
	}
	v := &view{ctl: found.control, stats: found.stats, services: found.services}
	v.look(ctx)
	if err := cmp.Or(v.lost, ctx.Err()); err != nil {
		obs.Reason = fmt.Sprintf("observe %s: %v", s.Key, err)
		return obs
	}
	rec := &found.control.rec
	obs.Presence = plan.Present
	obs.Complete = rec.Complete && !rec.Deleting
	obs.Unit = &rec.Unit
	obs.Members = v.members()
	obs.Drift = v.drift()
	obs.Jobs = v.jobs
	obs.RuntimeState = v.state()
	return obs
}

// seen is what a control host says at first.
type seen struct {
	control  *control
	stats    []runtimes.FileStat
	services []*runtimes.ServiceStatus // as controlServices
}

// controlServices are the daemons of a control stack, in the order they start.
func controlServices() []string {
	return []string{profile.Munged, profile.MariaDB, profile.Slurmdbd, profile.Slurmctld}
}

// find looks for the unit's record: where it is remembered to be, and else
// wherever it could be. It answers nil only if every such host has said no.
func (r *Runtime) find(ctx context.Context, s runtimes.Scope) (*seen, error) {
	var remembered []plan.Member
	for _, m := range s.Members {
		if m.ControlPlane {
			remembered = append(remembered, m)
		}
	}
	var rest []plan.Member
	for _, n := range s.Candidates {
		if !slices.ContainsFunc(remembered, func(m plan.Member) bool { return m.Node == n.Key.Name }) {
			rest = append(rest, plan.Member{Node: n.Key.Name, Address: n.Spec.Address, SSHPort: n.Spec.SSHPort})
		}
	}
	if len(remembered)+len(rest) == 0 {
		return nil, fmt.Errorf("there is no host that could be asked for %s", s.Key)
	}
	for _, group := range [][]plan.Member{remembered, rest} {
		hits, err := r.ask(ctx, s.Key, group)
		if err != nil {
			return nil, err
		}
		if len(hits) > 1 {
			return nil, fmt.Errorf("hosts %s and %s both have a record of %s: one is a leftover that a person has to judge",
				hits[0].control.host.Name(), hits[1].control.host.Name(), s.Key)
		}
		if len(hits) == 1 {
			return hits[0], nil
		}
	}
	return nil, nil
}

// ask asks hosts for the record at once. A host that cannot be asked is an
// error unless another one has the record.
func (r *Runtime) ask(ctx context.Context, key schema.Key, where []plan.Member) ([]*seen, error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var hits []*seen
	var failed []error
	for _, m := range where {
		wg.Go(func() {
			hit, err := r.askOne(ctx, key, m)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = append(failed, err)
			} else if hit != nil {
				hits = append(hits, hit)
			}
		})
	}
	wg.Wait()
	if len(failed) > 0 && len(hits) != 1 {
		slices.SortFunc(failed, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
		return nil, failed[0]
	}
	slices.SortFunc(hits, func(a, b *seen) int { return cmp.Compare(a.control.host.Name(), b.control.host.Name()) })
	return hits, nil
}

func (r *Runtime) askOne(ctx context.Context, key schema.Key, m plan.Member) (*seen, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeouts.Look)
	defer cancel()
	c := r.control(m, key, runtimes.Stamp{})
	ops := []runtimes.Op{readOp(c.stack.Record()), {Stat: &runtimes.Stat{Paths: watched(c.stack)}}}
	for _, name := range controlServices() {
		ops = append(ops, c.service(name, "state"))
	}
	res, err := c.do(ctx, ops...)
	if err != nil {
		if !strings.Contains(err.Error(), m.Node) {
			err = fmt.Errorf("host %s: %w", m.Node, err)
		}
		return nil, err
	}
	switch err := c.take(res[0]); {
	case errors.Is(err, errNoRecord):
		return nil, nil
	case err != nil:
		return nil, err
	}
	hit := &seen{control: c, stats: res[1].Stats}
	for _, one := range res[2:] {
		hit.services = append(hit.services, one.Service)
	}
	return hit, nil
}

// watched are the files that must be as rendered.
func watched(s profile.Stack) []string {
	return []string{s.Conf(), s.Etc() + "/cgroup.conf", s.Etc() + "/gres.conf", s.DBDConf()}
}

// view is one look at a unit that is there.
type view struct {
	ctl      *control
	stats    []runtimes.FileStat
	services []*runtimes.ServiceStatus

	lost     error  // contact with the control host, half way
	serving  bool   // slurmctld answers
	silence  string // why it does not
	nodes    []node
	version  string
	jobs     plan.Jobs
	people   string // how people differ from those declared; empty: in no way, or nobody can tell
	mismatch bool   // slurmctld runs another configuration than its file
	workers  map[string]workerView
}

type workerView struct {
	err           error
	record        workerRecord
	munge, slurmd bool
	detail        string
}

// look asks the controller and every worker at once.
func (v *view) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, v.ctl.r.timeouts.Look)
	defer cancel()
	v.workers = map[string]workerView{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	if v.services[len(v.services)-1].Running {
		wg.Go(func() { v.askController(ctx) })
	} else {
		v.silence = "slurmctld does not run"
	}
	for _, m := range v.ctl.rec.Joined {
		wg.Go(func() {
			w := v.askWorker(ctx, m)
			mu.Lock()
			v.workers[m.Name] = w
			mu.Unlock()
		})
	}
	wg.Wait()
}

func (v *view) askController(ctx context.Context) {
	c := v.ctl
	res, err := c.do(ctx, c.cli("scontrol", "ping"), c.cli("sinfo", "--json"),
		c.cli("squeue", "--noheader", "--all", profile.QueueFormat), c.cli("scontrol", "show", "config"))
	if err != nil {
		// A program that took too long tells of slurmctld; a host that does not
		// answer tells nothing of what runs on it.
		if op := new(runtimes.OpError); !errors.As(err, &op) {
			v.lost = err
		}
		v.silence = err.Error()
		return
	}
	if !pingUp(res[0].Data) {
		v.silence = strings.TrimSpace(string(res[0].Data) + string(res[0].Stderr))
		return
	}
	nodes, version, err := parseNodes(res[1].Data)
	if err != nil {
		v.silence = err.Error()
		return
	}
	jobs, err := parseQueue(res[2].Data)
	if err != nil || res[2].Exit != 0 {
		v.silence = "squeue does not answer"
		return
	}
	v.serving, v.nodes, v.version = true, nodes, version
	for _, j := range jobs {
		if j.pending() {
			v.jobs.Pending++
		} else {
			v.jobs.Running++
		}
	}
	v.mismatch = !hashMatches(res[3])
	v.askPeople(ctx)
}

// askPeople compares who may submit, and the accounts of the control host, with
// who is declared: two looks that cost milliseconds, however many people there
// are. What cannot be told is no difference.
func (v *view) askPeople(ctx context.Context) {
	users := v.ctl.rec.Unit.Instance.Users
	have, err := v.ctl.live(ctx)
	if err != nil {
		return
	}
	if want := names(users); !slices.Equal(have, want) {
		v.people = fmt.Sprintf("the cluster lets %s submit, and %s are declared", strings.Join(have, ", "), strings.Join(want, ", "))
		return
	}
	for part := range slices.Chunk(users, batch) {
		args, want := []string{"-u"}, ""
		for _, u := range part {
			args, want = append(args, u.Name), want+fmt.Sprintln(u.UID)
		}
		res, err := v.ctl.do(ctx, runtimes.Op{Run: &runtimes.Run{Program: "id", Args: args, TimeoutMS: 5_000, AllowExit: true}})
		if err == nil && string(res[0].Data) != want {
			v.people = "accounts on the control host are not those declared: " + strings.TrimSpace(string(res[0].Stderr))
		}
	}
}

func (v *view) askWorker(ctx context.Context, m plan.Member) workerView {
	c := v.ctl
	res, err := c.worker(m).do(ctx, readOp(workerRecordPath), c.service(profile.MungedWorker, "state"), c.service(profile.Slurmd, "state"))
	if err != nil {
		return workerView{err: err}
	}
	w := workerView{munge: res[1].Service.Running, slurmd: res[2].Service.Running, detail: res[2].Service.Detail}
	if !res[0].Missing {
		if err := json.Unmarshal(res[0].Data, &w.record); err != nil {
			return workerView{err: fmt.Errorf("host %s: %s: %w", m.Node, workerRecordPath, err)}
		}
	}
	return w
}

// members says how each member that exists is.
func (v *view) members() []plan.MemberState {
	var out []plan.MemberState
	if m, ok := v.ctl.rec.Unit.Control(); ok {
		state, detail := v.controlState()
		out = append(out, plan.MemberState{Name: m.Name, Node: m.Node, State: state, Detail: detail})
	}
	for _, m := range v.ctl.rec.Joined {
		state, detail := v.workerState(m)
		out = append(out, plan.MemberState{Name: m.Name, Node: m.Node, State: state, Detail: detail})
	}
	return out
}

func (v *view) controlState() (plan.State, string) {
	var down []string
	for i, name := range controlServices() {
		if !v.services[i].Running {
			down = append(down, name)
		}
	}
	switch {
	case !v.ctl.rec.Complete && len(down) < len(controlServices()):
		return plan.Partial, "not made to the end"
	case len(down) > 0:
		return plan.Stopped, strings.Join(down, ", ") + " down"
	case !v.serving:
		return plan.Stopped, "slurmctld runs and does not answer: " + v.silence
	}
	return plan.Running, ""
}

func (v *view) workerState(m plan.Member) (plan.State, string) {
	w := v.workers[m.Name]
	switch {
	case w.err != nil:
		return plan.Unreachable, w.err.Error()
	case w.record.Cluster != v.ctl.stack.Cluster:
		return plan.Partial, "the worker has no record of the cluster"
	case !w.munge || !w.slurmd:
		var down []string
		if !w.munge {
			down = append(down, "munged")
		}
		if !w.slurmd {
			down = append(down, "slurmd")
		}
		return plan.Stopped, strings.TrimSuffix(strings.Join(down, ", ")+" down: "+w.detail, ": ")
	case !v.serving:
		return plan.Running, "the controller cannot be asked about it"
	}
	n, ok := findNode(v.nodes, m.Node)
	state := strings.TrimSpace(n.State + " " + strings.Join(n.Flags, "+"))
	switch {
	case !ok:
		return plan.Partial, "slurmd runs and the controller does not know the node"
	case v.ctl.rec.closing(nodeThing(m.Node)):
		return plan.Draining, "finishes its jobs before it leaves"
	case v.ctl.rec.closing(v.ctl.clusterThing()):
		return plan.Draining, "finishes its jobs before the cluster stops"
	case n.State == "down" || n.State == "error":
		return plan.Stopped, "slurmd runs and the controller holds the node for " + state + ": " + n.Reason
	case n.State == "inval" || n.flag("INVALID_REG") || !shaped(n, m):
		return plan.Partial, fmt.Sprintf("the controller has the node as %s, %d CPUs, %d MiB, gres %q: %s", state, n.CPUs, n.Memory, n.Gres, n.Reason)
	case n.flag("DRAIN") && ownDrain(n):
		return plan.Partial, "drained by Berth (" + n.Reason + "), and nothing is on its way out: the drain was not taken back"
	case n.flag("DRAIN"):
		return plan.Running, "drained: " + n.Reason
	}
	return plan.Running, ""
}

// drift compares files with what they would be rendered to, and accounts with
// those declared.
func (v *view) drift() []plan.Drift {
	rec := &v.ctl.rec
	if !rec.Complete || rec.Deleting {
		return nil
	}
	control, _ := rec.Unit.Control()
	var out []plan.Drift
	rendered, err := files(rec)
	if err != nil {
		return []plan.Drift{{Member: control.Name, What: "configuration", Detail: err.Error()}}
	}
	for _, st := range v.stats {
		sum := sha256.Sum256(rendered[st.Path].data)
		if !st.Exists || st.SHA256 != hex.EncodeToString(sum[:]) {
			out = append(out, plan.Drift{Member: control.Name, What: "configuration", Detail: st.Path + " was changed or is gone"})
		}
	}
	if v.mismatch {
		out = append(out, plan.Drift{Member: control.Name, What: "configuration", Detail: "slurmctld runs another configuration than its file"})
	}
	if rec.Owed != (owed{}) {
		out = append(out, plan.Drift{Member: control.Name, What: "configuration", Detail: "a change was not finished: " + rec.Owed.String()})
	}
	if len(rec.leftover()) > 0 {
		out = append(out, plan.Drift{Member: control.Name, What: "users", Detail: "people who are no longer declared may still have accounts"})
	}
	if v.people != "" {
		out = append(out, plan.Drift{Member: control.Name, What: "users", Detail: v.people})
	}
	// What was being taken away and may be wanted again: configuring goes on
	// with it or takes it back.
	for _, thing := range slices.Sorted(maps.Keys(rec.Closing)) {
		if thing != v.ctl.clusterThing() && !strings.HasPrefix(thing, nodeThing("")) {
			out = append(out, plan.Drift{Member: control.Name, What: "access", Detail: thing + " is closed"})
		}
	}
	want := rec.Unit.Instance.Users
	if set, err := parseSettings(rec.Unit.Instance.Config); err == nil && set.Identity != identityManaged {
		want = nil
	}
	for _, m := range rec.Joined {
		if w := v.workers[m.Name]; w.err == nil && w.record.Cluster == rec.Cluster && !slices.Equal(w.record.Users, want) {
			out = append(out, plan.Drift{Member: m.Name, What: "users", Detail: "accounts on " + m.Node + " are not those declared"})
		}
	}
	return out
}

func (v *view) state() json.RawMessage {
	rec := &v.ctl.rec
	st := runtimeState{
		Cluster: rec.Cluster, Controller: rec.Hostname, Conf: v.ctl.stack.Conf(), Ports: rec.Ports, Version: v.version,
	}
	byName := map[string]nodeState{}
	for _, n := range v.nodes {
		s := nodeState{Name: n.Name, CPUs: n.CPUs, Memory: n.Memory, Gres: n.Gres}
		if n.flag("DRAIN") {
			s.Drained = n.Reason
		}
		byName[n.Name] = s
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		st.Nodes = append(st.Nodes, byName[name])
	}
	return encode(st)
}
