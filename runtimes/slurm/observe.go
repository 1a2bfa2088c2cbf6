package slurm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/accounting"
	"berth/runtimes/slurm/cli"
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
	c := newControl(r.env, m, s.Key, runtimes.Stamp{})
	ops := append(c.file().readOps(), statOp(repairedPaths(c.stack)...),
		statOp(append([]string{c.stack.Munge().Key()}, writtenPaths(c.stack)...)...))
	directories := len(ops)
	ops = append(ops, controlDirectoryOps(c.stack)...)
	read := len(ops)
	res, err := c.do(ctx, append(ops, stackDaemons{control: c}.serviceStates()...)...)
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

// observation is the state of an existing unit.
type observation struct {
	ctl      *control
	services []*runtimes.ServiceStatus // as controlServices

	remains string // the host, which has the state of the unit and a database, and no record of it
	lost    error  // the control host became unreachable
	jobs    snapshot
	fileReading
	key      runtimes.FileStat // the munge key on the controller
	keyFault string            // how it is not the cluster's
	accountingReading
	controllerReading
	workers map[string]workerReading
	wrong   string // how the installed version differs from the declared one
}

// controllerReading is what slurmctld has, and what of it is otherwise than its file and the config.
type controllerReading struct {
	serving      bool   // slurmctld answers
	silence      string // why it does not answer
	nodes        []node
	version      string
	mismatch     bool     // it runs a configuration other than its file
	byHand       []string // what a person changed by scontrol
	reservations []string // how they differ from the declared ones
	// reserved has the reservation that a person made and that a node is in now, by node.
	reserved map[string]handReservation
}

// accountingReading is the state of slurmdbd, and of the users.
type accountingReading struct {
	database   string              // why slurmdbd does not serve although it runs
	unwritable string              // why slurmdbd serves and cannot write
	accounting []accounting.Change // what it has otherwise than declared; nil: nothing, or unknown
	people     string              // how users differ from the declared ones; empty: no difference, or unknown
}

// fileReading is the state of the files of a complete stack.
type fileReading struct {
	modified map[string]string // how those differ that were changed or removed
	// directories of the controller that are otherwise than Berth made them, and how.
	directories map[string]string
	disks       []string   // of the controller, on which nothing can be written
	unrendered  error      // they cannot be rendered
	change      fileChange // what the record gives otherwise than the files that worked last
	fetched     fetched    // what workers have of them
}

type workerReading struct {
	err    error
	record workerRecord
	down   []string // daemons that do not run
	detail string
	// outdated are daemons whose unit of systemd was changed.
	outdated []string
	wrong    string // how its installed version differs from the declared one
	lacks    string // what the host lacks of what a worker needs
	hasKey   bool   // it has the cluster's munge key
	earlier  string // which file its slurmd has not fetched
}

// compareFiles compares the files of the stack with those that worked last.
func (v *observation) compareFiles(stats []runtimes.FileStat, owners map[string]uint32) {
	var err error
	if v.change, err = v.ctl.disk.changeTo(&v.ctl.rec); cmp.Or(err, v.change.unreadable) != nil {
		v.unrendered = cmp.Or(v.change.unreadable, err)
		return
	}
	v.fetched = v.ctl.rec.fetched(v.change.Have)
	want := v.change.possible()
	for _, st := range stats {
		if fault := fileFault(want, v.ctl.host.Name(), st, owners); fault != "" {
			v.modify(st.Path, fault)
		}
	}
}

// modify notes how a file of the controller differs from what Berth wrote.
func (v *observation) modify(path, how string) {
	if v.modified == nil {
		v.modified = map[string]string{}
	}
	v.modified[path] = how
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

// readServices reads the states of the control stack's daemons again. A daemon that ended during
// the observation is stopped; it does not hang.
func (v *observation) readServices(caller context.Context) {
	ctx, cancel := context.WithTimeout(caller, v.ctl.env.timeouts.Call)
	defer cancel()
	res, err := v.ctl.do(ctx, stackDaemons{control: v.ctl}.serviceStates()...)
	if err != nil {
		return
	}
	for i, one := range res {
		v.services[i] = one.Service
	}
}

// runs reports whether a daemon of the control stack runs.
func (v *observation) runs(service string) bool {
	return v.services[slices.Index(controlServices(), service)].Running
}

// readAccounting compares what slurmdbd has with what is declared. A slurmdbd that does not list it does not serve.
func (v *observation) readAccounting(ctx context.Context) {
	want, err := v.ctl.rec.accounting()
	if err != nil {
		return // the files cannot be rendered either
	}
	have, _, err := (associations{control: v.ctl, limit: v.ctl.env.timeouts.Look * 3 / 4}).read(ctx)
	switch {
	case err == nil:
		v.accounting = accounting.Diff(have, want)
		v.unwritable = v.notWritable(ctx)
	case errors.Is(err, accounting.ErrNoCluster):
		v.database = "accounting is lost: " + err.Error()
	case timedOut(err):
		v.database = fmt.Sprintf("slurmdbd runs and does not answer within %v: it or mariadbd hangs, or has too much to do",
			v.ctl.env.timeouts.Look*3/4)
	case errors.Is(err, cli.ErrExit):
		v.database = "slurmdbd runs and does not serve; its log and that of mariadbd may say why: " + err.Error()
	}
}

// notWritable returns why accounting can be read and not written; "": it can, or nobody knows. slurmctld keeps the records of jobs
// meanwhile, until it has MaxDBDMsgs of them.
func (v *observation) notWritable(ctx context.Context) string {
	op := runtimes.Op{Run: &runtimes.Run{Program: "mariadb", Args: v.ctl.stack.Database().WritableArgs(), AllowExit: true}}
	res, err := v.ctl.do(ctx, op)
	if err != nil {
		return ""
	}
	said := string(res[0].Stderr)
	switch readOnly := strings.TrimSpace(string(res[0].Data)); {
	case strings.Contains(said, "ERROR 1205"):
		return "the database of the cluster is locked, so nothing is recorded: end the program that locks it, such as a backup (SHOW " +
			"PROCESSLIST)"
	case res[0].Exit != 0:
		return "nothing is recorded: " + v.ctl.exitError(op, res[0]).Error()
	case readOnly == "1" || readOnly == "ON" || strings.HasPrefix(readOnly, "NO_LOCK"): // the words are those of MariaDB 12
		return "mariadbd is read-only, so nothing is recorded: SET GLOBAL read_only = OFF"
	}
	return ""
}

func (v *observation) readController(ctx context.Context) {
	c := v.ctl
	ping := c.cli("scontrol", "ping")
	if v.modified[c.stack.Conf()] != "" { // it may name no controller, or another one
		ping.Run.TimeoutMS /= 2
		if res, err := c.do(ctx, ping); v.isSilent(res, err) {
			return
		}
	}
	tools, err := c.tools(ctx)
	if err != nil {
		v.isSilent(nil, err)
		return
	}
	if v.modified[c.stack.Conf()] == "" {
		var jobs sync.WaitGroup
		defer jobs.Wait()
		jobs.Go(func() { v.snapshotJobs(ctx) })
	}
	res, err := c.do(ctx, ping, queryOp(c, tools.Nodes), queryOp(c, cli.ShowConfig()), queryOp(c, cli.Partitions()))
	if v.isSilent(res, err) {
		return
	}
	nodes, nodesErr := answer(c.site, tools.Nodes, res[1])
	config, configErr := answer(c.site, cli.ShowConfig(), res[2])
	if err := cmp.Or(nodesErr, configErr); err != nil {
		v.silence = err.Error()
		return
	}
	v.serving, v.nodes, v.version = true, nodes, config.Version
	v.mismatch = !config.Matches
	c.env.lastJobs.note(c.stack.Cluster, config.NextJob)
	if known, err := answer(c.site, cli.Partitions(), res[3]); err == nil && !v.mismatch && v.change.applied != nil {
		v.byHand = v.change.applied.ChangedByHand(known, nodes, c.disk.closes)
	}
	var others sync.WaitGroup
	defer others.Wait()
	others.Go(func() { v.compareReservations(ctx) })
	v.compareUsers(ctx)
}

// isSilent records why slurmctld did not answer a batch that begins with a ping, if so.
func (v *observation) isSilent(res []runtimes.Result, err error) bool {
	switch op := new(runtimes.OpError); {
	case err != nil:
		// A program that timed out is a symptom of slurmctld. From an unreachable host
		// nothing is known.
		if !errors.As(err, &op) {
			v.lost = err
		}
		v.silence = err.Error()
	case !pingUp(res[0]):
		v.silence = strings.TrimSpace(string(res[0].Data) + string(res[0].Stderr))
	default:
		return false
	}
	return true
}

// compareUsers compares slurmctld's users and the accounts of the control host with
// the declared users. Each query takes milliseconds for any number of users. A
// failed query is not a difference.
func (v *observation) compareUsers(ctx context.Context) {
	users := v.ctl.rec.users()
	have, err := (associations{control: v.ctl}).inController(ctx)
	if err != nil {
		return
	}
	if want := cluster.UserNames(users); !slices.Equal(have, want) {
		v.people = fmt.Sprintf("users in the cluster: %s; declared: %s", strings.Join(have, ", "), strings.Join(want, ", "))
		return
	}
	for part := range slices.Chunk(users, batch) {
		res, err := v.ctl.do(ctx, uidsOp(part))
		if err == nil && string(res[0].Data) != uids(part) {
			v.people = "accounts on the control host differ from the declared users: " + strings.TrimSpace(string(res[0].Stderr))
		}
	}
}

func (v *observation) readWorker(ctx context.Context, m plan.Member) workerReading {
	c := v.ctl
	control, _ := c.rec.Unit.Control()
	users := c.rec.users()
	programs := cluster.Programs(c.rec.Unit.Effective.Config)
	ops := []runtimes.Op{
		readOp(workerRecordPath), c.service(profile.MungedWorker, "state"), c.slurmd(m, control, "state"),
		statOp(slices.Concat(gpuFiles(m), programPaths(programs), pathsOf(workerDirectories(c.stack)),
			[]string{profile.WorkerMungeKey})...),
		{List: &runtimes.List{Path: c.stack.Jobs()}},
	}
	for part := range slices.Chunk(users, batch) {
		ops = append(ops, uidsOp(part))
	}
	ops = append(ops, statOp(c.stack.FetchedPaths()...))
	res, err := c.worker(m).do(ctx, ops...)
	if err != nil {
		return workerReading{err: err}
	}
	rec, err := c.worker(m).readWorker(res[0])
	if errors.Is(err, errDamaged) {
		err = nil
	}
	w := workerReading{err: err, record: rec, detail: res[2].Service.Detail, lacks: v.lacks(m, programs, res[3].Stats)}
	key := res[3].Stats[len(res[3].Stats)-1].SHA256
	w.hasKey = key != "" && key == c.rec.MungeKey
	if len(res) == len(ops) && len(v.modified) == 0 && len(v.change.Changes) == 0 {
		w.earlier = v.fetched.fault(m.Node, res[len(ops)-1].Stats)
	}
	for i, name := range []string{"munged", "slurmd"} {
		st := res[i+1].Service
		if !st.Running {
			w.down = append(w.down, name)
		}
		if st.Running && st.Outdated {
			w.outdated = append(w.outdated, name)
		}
	}
	for _, u := range users {
		if _, ok := slices.BinarySearch(res[4].Names, path.Base(c.stack.JobsOf(u.Name, u.UID))); !ok && w.lacks == "" {
			w.lacks = "no directory for jobs of " + u.Name + " on " + m.Node
		}
	}
	if !slices.Equal(rec.Users, users) { // they are being changed, or belong to a directory service
		return w
	}
	next := 5
	for part := range slices.Chunk(users, batch) {
		if w.lacks == "" && string(res[next].Data) != uids(part) {
			w.lacks = "accounts on " + m.Node + " differ from the declared users: " + strings.TrimSpace(string(res[next].Stderr))
		}
		next++
	}
	return w
}

// lacks compares the device files, the programs, the directories and the munge key of a worker with what it
// needs. It returns the first difference.
func (v *observation) lacks(m plan.Member, programs []cluster.Program, stats []runtimes.FileStat) string {
	directories := workerDirectories(v.ctl.stack)
	for _, st := range stats {
		i := slices.IndexFunc(directories, func(d directory) bool { return d.path == st.Path })
		switch {
		case diskFault(m.Node, st) != "":
			return diskFault(m.Node, st)
		case i >= 0:
			if fault := directories[i].fault(m.Node, st, 0); fault != "" {
				return fault
			}
		case st.Path == profile.WorkerMungeKey:
			if fault := v.ctl.rec.keyFault(m.Node, st, nil); fault != "" {
				return fault
			}
		case strings.HasPrefix(st.Path, profile.ProgramDir):
			if err := programFault(m.Node, programs, st); err != nil {
				return err.Error()
			}
		case !st.Exists:
			return st.Path + " on " + m.Node + " is missing; bring the GPU back, or correct gpus in the node's document"
		case st.Type != "char":
			return st.Path + " on " + m.Node + " is not a device file; bring the GPU back, or correct gpus in the node's document"
		}
	}
	return ""
}

// gpuFiles returns the device files of a member's GPUs.
func gpuFiles(m plan.Member) []string {
	var paths []string
	for _, g := range m.GPUs {
		files, _ := cluster.DeviceFiles(g.Devices) // an invalid one was refused at the join
		paths = append(paths, files...)
	}
	return paths
}

// uidsOp asks a host for the uids of users. They are as declared if it prints uids.
func uidsOp(users []schema.UnixUser) runtimes.Op {
	args := []string{"-u"}
	for _, u := range users {
		args = append(args, u.Name)
	}
	return runtimes.Op{Run: &runtimes.Run{Program: "id", Args: args, TimeoutMS: int(localTimeout.Milliseconds()), AllowExit: true}}
}

func uids(users []schema.UnixUser) string {
	text := ""
	for _, u := range users {
		text += fmt.Sprintln(u.UID)
	}
	return text
}

// members returns the state of each member that exists.
func (v *observation) members() []plan.MemberState {
	var out []plan.MemberState
	add := func(m plan.Member, state plan.State, detail string) {
		out = append(out, plan.MemberState{Name: m.Name, Node: m.Node, State: state, Detail: detail})
	}
	if m, ok := v.ctl.rec.Unit.Control(); ok {
		state, detail := v.controlState()
		add(m, state, detail)
	}
	for _, m := range v.ctl.rec.Joined {
		state, detail := v.workerState(m)
		add(m, state, detail)
		joined := &out[len(out)-1]
		joined.References = map[string]string{"cluster": v.ctl.rec.Cluster, "node": m.Node}
		reserved := v.reserved[m.Node]
		if reserved.isMaintenance {
			reserved.text = "" // OutOfService has it
		}
		joined.Note = joinNotes(cluster.UnusedHardware(m, v.ctl.rec.Found[m.Node]), reserved.text, v.jobs.failedLaunches(m.Node))
		if state == plan.Running && v.serving {
			joined.OutOfService = v.outOfService(m.Node)
		}
	}
	return out
}

func (v *observation) controlState() (plan.State, string) {
	var down []string
	for i, name := range controlServices() {
		if st := v.services[i]; !st.Running {
			down = append(down, strings.TrimSuffix(name+" down: "+st.Detail, ": "))
		}
	}
	switch {
	case !v.ctl.rec.Complete && len(down) < len(controlServices()):
		return plan.Partial, "creation is not complete"
	case len(down) > 0:
		return plan.Stopped, strings.Join(down, "; ")
	case !v.serving && v.modified[v.ctl.stack.Conf()] != "":
		// Its clients read that file, so their failure says nothing about slurmctld.
		return plan.Running, "slurmctld runs; whether it answers is unknown until slurm.conf is restored"
	case !v.serving:
		return plan.Hung, "slurmctld runs and does not answer: " + v.silence
	case v.database != "":
		return plan.Hung, v.database
	}
	return plan.Running, ""
}

func (v *observation) workerState(m plan.Member) (plan.State, string) {
	w := v.workers[m.Name]
	switch {
	case w.err != nil:
		return plan.Unreachable, w.err.Error()
	case w.record.Cluster != v.ctl.stack.Cluster:
		return plan.Partial, fmt.Sprintf("%s on %s is missing, damaged, or of another cluster", profile.WorkerRecord, m.Node)
	case len(w.down) > 0:
		return plan.Stopped, strings.TrimSuffix(strings.Join(w.down, ", ")+" down: "+w.detail, ": ")
	case w.lacks != "" && !v.ctl.rec.closing(nodeTarget(m.Node)) && !v.ctl.rec.closing(v.ctl.clusterTarget()):
		return plan.Partial, w.lacks
	case !v.serving:
		return plan.Running, "the controller does not answer"
	}
	n, ok := findNode(v.nodes, m.Node)
	if v.mismatch {
		w.earlier = "" // nobody knows what it should be
	}
	isFit := n.State != "inval" && !n.Has("INVALID_REG") && hasShape(n, cluster.Fitted(m, v.ctl.rec.Found[m.Node]))
	fault := v.ctl.rec.slurmds().fault(n, w.earlier, isFit && hasLostJobs(n, v.jobs.earliest, v.controllerAge()))
	switch {
	case !ok:
		return plan.Partial, "slurmd runs but the controller does not know the node"
	case v.ctl.rec.closing(nodeTarget(m.Node)):
		return plan.Draining, "finishes its jobs before it leaves"
	case v.ctl.rec.closing(v.ctl.clusterTarget()):
		return plan.Draining, "finishes its jobs before the cluster stops"
	case fault.detail != "":
		return fault.state, fault.detail
	case n.State == "down": // an administrator's
		return plan.Running, ""
	case !isFit:
		return plan.Partial, fmt.Sprintf("the controller has the node as %s, %d CPUs, %d MiB, gres %q: %s", stateOf(n), n.CPUs, n.Memory,
			n.Gres, n.Reason)
	case n.Has("DRAIN") && drainOwnerOf(n) == drainUnfit: // another repair than that of its disk: it begins at once
		return plan.Stopped, "its disk can be written again, and it takes jobs when the drain " + n.Reason + " ends"
	case n.Has("DRAIN") && drainOwnerOf(n).isOwn():
		return plan.Partial, "still drained by Berth (" + n.Reason + ") although no member leaves"
	}
	return plan.Running, ""
}

// outOfService returns why a node takes no jobs although its slurmd serves, with who said so and when; empty: it takes jobs.
func (v *observation) outOfService(name string) string {
	n, _ := findNode(v.nodes, name)
	what := ""
	switch {
	case n.State == "down":
		what = "down"
	case n.Has("DRAIN"):
		what = "drained"
	case n.Has("FAIL"):
		what = "set to fail"
	default:
		if by := v.reserved[name]; by.isMaintenance {
			return by.text
		}
		return ""
	}
	said := []string{}
	if n.ReasonBy != "" {
		said = append(said, n.ReasonBy)
	}
	if n.ReasonAt > 0 {
		said = append(said, time.Unix(n.ReasonAt, 0).UTC().Format("2006-01-02 15:04 UTC"))
	}
	what += ": " + cmp.Or(n.Reason, "no reason is given")
	if len(said) > 0 {
		what += " (" + strings.Join(said, ", ") + ")"
	}
	return what
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
