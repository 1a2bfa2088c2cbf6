package slurm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// runtimeState is Slurm's part of the status. It has no field that changes with the
// jobs.
type runtimeState struct {
	Cluster    string        `json:"cluster"`
	Controller string        `json:"controller"`
	Conf       string        `json:"conf"` // SLURM_CONF for people on the controller
	Ports      cluster.Ports `json:"ports"`
	Version    string        `json:"version,omitempty"`
	Nodes      []nodeState   `json:"nodes,omitempty"` // by name
	// Hung has the time of the last restart of each daemon that did not answer.
	Hung map[string]time.Time `json:"hung,omitempty"`
	// BackedUp is the time of the last backup; before the first, of the creation.
	BackedUp time.Time `json:"backed_up,omitzero"`
}

type nodeState struct {
	Name    string `json:"name"`
	CPUs    int    `json:"cpus"`
	Memory  int    `json:"memory_mib"`
	Gres    string `json:"gres,omitempty"`
	Drained string `json:"drained,omitempty"` // why
}

// Observe implements runtimes.Runtime. It takes three round trips to the control host
// and, in parallel, one to each worker.
func (r *Runtime) Observe(ctx context.Context, s runtimes.Scope) plan.Observed {
	obs := plan.Observed{Key: s.Key, Presence: plan.Unknown}
	v, err := r.find(ctx, s)
	switch {
	case err != nil:
		obs.Reason, obs.NeedsPerson = err.Error(), errors.Is(err, runtimes.ErrNeedsPerson)
		return obs
	case v.ctl.rec.Format == "":
		if obs.Presence, obs.Remains = plan.Absent, v.remains != ""; obs.Remains {
			obs.Reason = fmt.Sprintf("%s on %s and its copy are missing or damaged: Berth makes them again",
				profile.Stack{Cluster: cluster.Name(s.Key)}.Record(), v.remains)
		}
		return obs
	}
	declared := &v.ctl.rec.Unit.Effective
	if s.Instance != nil {
		declared = s.Instance
	}
	v.look(ctx, declared)
	if err := cmp.Or(v.lost, ctx.Err()); err != nil {
		obs.Reason, obs.NeedsPerson = fmt.Sprintf("observe %s: %v", s.Key, err), errors.Is(err, runtimes.ErrNeedsPerson)
		return obs
	}
	rec := &v.ctl.rec
	obs.Presence = plan.Present
	obs.Complete = rec.Complete && !rec.Deleting
	obs.Unit = rec.current()
	obs.Members = v.members()
	obs.Drift = v.drift()
	obs.Jobs = v.jobs.Jobs
	obs.RuntimeState = v.state()
	return obs
}

// find reads the unit's record from the recorded host, and otherwise from the
// candidates. Only if all of them answered and none has it, the observation has no record.
func (r *Runtime) find(ctx context.Context, s runtimes.Scope) (*observation, error) {
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
		return nil, fmt.Errorf("no host to ask for %s", s.Key)
	}
	absent := &observation{ctl: newControl(r.env, plan.Member{}, s.Key, runtimes.Stamp{})}
	for _, group := range [][]plan.Member{remembered, rest} {
		hits, remains, err := r.readControlHosts(ctx, s, group)
		if err != nil {
			return nil, err
		}
		absent.remains = cmp.Or(absent.remains, remains)
		if len(hits) > 1 {
			return nil, fmt.Errorf("hosts %s and %s both have a record of %s: decide which one is left over and remove it",
				hits[0].ctl.host.Name(), hits[1].ctl.host.Name(), s.Key)
		}
		if len(hits) == 1 {
			return hits[0], nil
		}
	}
	return absent, nil
}

// readControlHosts reads the record from all hosts in parallel. An unreachable host
// is an error unless another host has the record. remains is a host with the state of the unit and no record.
func (r *Runtime) readControlHosts(
	ctx context.Context, s runtimes.Scope, where []plan.Member,
) (hits []*observation, remains string, failed error) {
	type answer struct {
		unit *observation
		err  error
	}
	for _, a := range inParallel(where, func(m plan.Member) answer {
		unit, err := r.readControlHost(ctx, s, m)
		return answer{unit, err}
	}) {
		if failed == nil || errors.Is(a.err, runtimes.ErrNeedsPerson) {
			failed = a.err
		}
		switch {
		case a.unit == nil:
		case a.unit.remains != "":
			remains = a.unit.remains
		default:
			hits = append(hits, a.unit)
		}
	}
	if failed != nil && len(hits) != 1 {
		return nil, "", failed
	}
	return hits, remains, nil
}

func (r *Runtime) readControlHost(ctx context.Context, s runtimes.Scope, m plan.Member) (*observation, error) {
	ctx, cancel := context.WithTimeout(ctx, r.env.timeouts.Look)
	defer cancel()
	c := newControl(r.env, m, s.Key, s.Stamp)
	ops := append(c.file().readOps(), statOp(repairedPaths(c.stack)...),
		statOp(append([]string{c.stack.Munge().Key()}, writtenPaths(c.stack)...)...))
	directories := len(ops)
	ops = append(ops, controlDirectoryOps(c.stack)...)
	read := len(ops)
	res, err := c.do(ctx, append(ops, controlDaemons{c}.serviceStates()...)...)
	if err != nil {
		if !strings.Contains(err.Error(), m.Node) {
			err = fmt.Errorf("host %s: %w", m.Node, err)
		}
		return nil, err
	}
	files, key := res[2].Stats, res[3].Stats
	differ, err := c.useRecord(res[0], res[1])
	switch {
	case errors.Is(err, errDamaged) && s.Instance == nil:
		return nil, runtimes.NeedsPerson(fmt.Errorf("%w; its deletion needs the record: declare it again, running and not suspended, "+
			"until the record is made again", err))
	case errors.Is(err, errNoRecord):
		if !key[1].Exists {
			return nil, nil
		}
		left, err := c.do(ctx, statOp(c.stack.StateMark(), profile.DatabaseInstalled))
		if err != nil {
			return nil, err
		}
		if left[0].Stats[0].Exists && left[0].Stats[1].Exists {
			return &observation{ctl: c, remains: m.Node}, nil
		}
		return nil, nil
	case err != nil:
		return nil, err
	}
	hit := &observation{ctl: c}
	owners := ownersOf(res[directories:read])
	hit.compareFiles(files, owners)
	if differ {
		hit.modify(c.stack.Record(), c.stack.Record()+" on "+m.Node+" or its copy is missing or damaged")
	}
	mungeKey{c}.adopt(key[0].SHA256)
	hit.key, hit.keyFault = key[0], c.rec.keyFault(m.Node, key[0], owners)
	hit.disks = diskFaults(m.Node, key[1:])
	hit.directories = controlFaults(c.stack, m.Node, res[directories:read])
	for _, one := range res[read:] {
		hit.services = append(hit.services, one.Service)
	}
	return hit, nil
}

// look queries the controller and all workers in parallel. declared is the instance as it
// should be.
func (v *observation) look(caller context.Context, declared *schema.EffectiveUnit) {
	ctx, cancel := context.WithTimeout(caller, v.ctl.env.timeouts.Look)
	defer cancel()
	v.workers, v.jobs = map[string]workerReading{}, snapshot{Jobs: &plan.Jobs{Unknown: v.whyNoSnapshot()}}
	var wg sync.WaitGroup
	switch {
	case !v.runs(profile.Slurmctld):
		v.silence = "slurmctld does not run"
	case !v.runs(profile.Munged): // each of its clients would try again for seconds
		v.silence = "munged does not run"
	default:
		wg.Go(func() { v.readController(ctx) })
	}
	if v.runs(profile.Slurmdbd) && v.runs(profile.Munged) && v.modified[v.ctl.stack.Conf()] == "" {
		wg.Go(func() { v.readAccounting(ctx) })
	}
	wg.Go(func() { v.wrong = otherVersion(ctx, v.ctl.checkVersion(ctx, declared)) })
	readings := inParallel(v.ctl.rec.Joined, func(m plan.Member) workerReading {
		w := v.readWorker(ctx, m)
		if w.err == nil {
			w.wrong = otherVersion(ctx, v.ctl.worker(m).checkVersion(ctx, declared))
		}
		return w
	})
	for i, m := range v.ctl.rec.Joined {
		v.workers[m.Name] = readings[i]
	}
	wg.Wait()
	if v.lost == nil && (!v.serving || v.database != "") {
		v.readServices(caller)
	}
}

func (v *observation) state() json.RawMessage {
	rec := &v.ctl.rec
	st := runtimeState{
		Cluster: rec.Cluster, Controller: rec.Hostname, Conf: v.ctl.stack.Conf(), Ports: rec.Ports, Version: v.version, Hung: rec.Hung,
		BackedUp: rec.BackedUp,
	}
	for _, n := range v.nodes {
		s := nodeState{Name: n.Name, CPUs: n.CPUs, Memory: n.Memory, Gres: n.Gres}
		if n.Has("DRAIN") {
			s.Drained = n.Reason
		}
		st.Nodes = append(st.Nodes, s)
	}
	slices.SortFunc(st.Nodes, func(a, b nodeState) int { return strings.Compare(a.Name, b.Name) })
	return encode(st)
}
