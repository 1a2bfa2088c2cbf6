package slurm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// Reasons of drains of ours, which alone are ever undone. What follows is the
// action's id.
const (
	drainLeave = "berth:leave-"
	drainStop  = "berth:stop-"
)

// join brings a member in: devices checked, its line in gres.conf before the
// node, the worker made ready, the node read back at the controller.
func (c *control) join(ctx context.Context, after *plan.Unit, a plan.Action) error {
	m, ok := after.Member(a.Member)
	if !ok {
		return fmt.Errorf("the plan has no member %q", a.Member)
	}
	if err := c.checkDevices(ctx, m); err != nil {
		return err
	}
	wk := c.worker(m)
	res, err := wk.do(ctx, readOp(workerRecordPath))
	if err != nil {
		return err
	}
	switch owned, err := c.owned(wk, res[0]); {
	case err != nil:
		return err
	case !owned: // before anything is written, at the controller too
		if _, err := wk.do(ctx, c.workerPreflight()); err != nil {
			return err
		}
	}
	nodes, err := c.admit(ctx, m)
	if err != nil {
		return err
	}
	return c.bringIn(ctx, m, nodes)
}

// admit puts a member on record and its GPUs into gres.conf. It returns the
// nodes the controller knows. The file counts only after a reconfigure.
func (c *control) admit(ctx context.Context, m plan.Member) ([]node, error) {
	defer c.r.lock("cluster " + c.stack.Cluster)()
	if err := c.load(ctx); err != nil {
		return nil, err
	}
	if own, ok := c.rec.Unit.Control(); ok && own.Node == m.Node {
		return nil, fmt.Errorf("node %s has the control plane of the same instance, and cannot be its worker too", m.Node)
	}
	c.rec.setJoined(m)
	c.rec.setGres(m)
	c.rec.reopen(nodeThing(m.Node), c.clusterThing()) // whatever was on its way out is wanted again
	if err := c.writeGres(ctx, c.writeRecord(&c.rec)); err != nil {
		return nil, err
	}
	return c.nodes(ctx)
}

// writeGres brings gres.conf to what is on record, after other operations, and
// makes sure that the controller has read it.
func (c *control) writeGres(ctx context.Context, first ...runtimes.Op) error {
	gres, err := renderGresConf(c.rec.Gres)
	if err != nil {
		return err
	}
	ops := append(first, writeOp(c.stack.Etc()+"/gres.conf", file{gres, 0o644, ""}), c.cli("scontrol", "show", "config"))
	res, err := c.do(ctx, ops...)
	if err != nil {
		return err
	}
	written, config := res[len(res)-2], res[len(res)-1]
	if !written.Changed && hashMatches(config) {
		return nil
	}
	if _, err := c.must(ctx, c.cli("scontrol", "reconfigure")); err != nil {
		return err
	}
	return c.awaitController(ctx)
}

// nodes asks the controller for the nodes it knows.
func (c *control) nodes(ctx context.Context) ([]node, error) {
	res, err := c.must(ctx, c.cli("sinfo", "--json"))
	if err != nil {
		return nil, err
	}
	nodes, _, err := parseNodes(res.Data)
	return nodes, err
}

func findNode(nodes []node, name string) (node, bool) {
	i := slices.IndexFunc(nodes, func(n node) bool { return n.Name == name })
	if i < 0 {
		return node{}, false
	}
	return nodes[i], true
}

// shaped says whether the controller holds a node for what m is. A node that
// joins with another shape than the controller remembers silently keeps the
// remembered one.
func shaped(n node, m plan.Member) bool {
	if n.CPUs != m.CPUs || n.Memory != m.MemoryMiB {
		return false
	}
	var want, have []string
	for _, g := range m.GPUs {
		want = append(want, fmt.Sprintf("gpu:%s:%d", g.Type, g.Count))
	}
	for word := range strings.SplitSeq(n.Gres, ",") {
		word, _, _ = strings.Cut(word, "(") // (S:0-1): which sockets
		if word != "" {
			have = append(have, word)
		}
	}
	slices.Sort(want)
	slices.Sort(have)
	return slices.Equal(want, have)
}

// bringIn makes a worker ready and waits until the controller has it in shape.
// What is in place and running is left alone.
func (c *control) bringIn(ctx context.Context, m plan.Member, nodes []node) error {
	control, _ := c.rec.Unit.Control()
	wk := c.worker(m)
	key, err := c.do(ctx, readOp(c.stack.MungeKey()))
	if err != nil {
		return err
	}
	if key[0].Missing {
		return fmt.Errorf("host %s: %s is gone: without it nothing of the cluster trusts anything else", c.host.Name(), c.stack.MungeKey())
	}
	res, err := wk.do(ctx, readOp(workerRecordPath),
		runtimes.Op{Stat: &runtimes.Stat{Paths: []string{profile.WorkerMungeKey}}},
		c.service(profile.MungedWorker, "state"), c.service(profile.Slurmd, "state"))
	if err != nil {
		return err
	}
	owned, err := c.owned(wk, res[0])
	if err != nil {
		return err
	}
	slurmdRuns := res[3].Service.Running
	known, isKnown := findNode(nodes, m.Node)
	if isKnown && (!owned || !shaped(known, m)) {
		// What the controller remembers is of an earlier life of the node.
		if err := c.forget(ctx, wk, m, known); err != nil {
			return err
		}
		isKnown, slurmdRuns = false, false
	}

	users := c.rec.Unit.Instance.Users
	mine := workerRecord{Format: workerFormat, Cluster: c.stack.Cluster, Key: c.key, Node: m.Node}
	if set, err := parseSettings(c.rec.Unit.Instance.Config); err != nil {
		return err
	} else if set.Identity == identityManaged {
		mine.Users = users
	}
	var ops []runtimes.Op
	if !owned {
		ops = append(ops, c.service(profile.Slurmd, "stop"), c.service(profile.MungedWorker, "stop"),
			removeTreeOp(profile.WorkerSpoolDir), removeOp(profile.WorkerConfLink))
	}
	ops = append(ops,
		dirOp(profile.InstanceDir, 0o755, ""),
		writeOp(workerRecordPath, file{mine.encode(), 0o600, ""}),
		dirOp(profile.MungeEtc, 0o700, profile.MungeUser),
		dirOp(profile.MungeLib, 0o711, profile.MungeUser),
		dirOp(profile.MungeLog, 0o700, profile.MungeUser),
		dirOp(profile.StateDir, 0o755, profile.SlurmUser),
		dirOp(profile.LogDir, 0o755, profile.SlurmUser),
		ownDirOp(profile.WorkerSpoolDir, 0o755, ""),
	)
	munge := "start"
	if sum := sha256.Sum256(key[0].Data); res[2].Service.Running && res[1].Stats[0].SHA256 != hex.EncodeToString(sum[:]) {
		munge = "restart" // it reads its key at start only
	}
	ops = append(ops,
		writeOp(profile.WorkerMungeKey, file{key[0].Data, 0o400, profile.MungeUser}),
		c.service(profile.MungedWorker, munge))
	if err := c.settleIn(ctx, wk, ops); err != nil {
		return err
	}
	if err := c.makeUsers(ctx, wk, users); err != nil {
		return err
	}
	start := c.slurmd(m, control, "start")
	if slurmdRuns && (!isKnown || !known.registered()) {
		start = c.slurmd(m, control, "restart") // it runs, and the controller does not see it
	}
	if _, err := wk.do(ctx, start); err != nil {
		return err
	}
	if err := c.awaitNode(ctx, wk, m); err != nil {
		return err
	}
	return c.restoreDrain(ctx, m)
}

// settleIn lays a worker's record and all that goes with it down, while nobody
// looks whose accounts are needed there.
func (c *control) settleIn(ctx context.Context, wk site, ops []runtimes.Op) error {
	defer c.r.lock("host " + wk.host.Name())()
	_, err := wk.do(ctx, ops...)
	return err
}

// owned says whether the worker is this cluster's already. It is an error if
// it is another's.
func (c *control) owned(wk site, res runtimes.Result) (bool, error) {
	if res.Missing {
		return false, nil
	}
	var rec workerRecord
	if err := json.Unmarshal(res.Data, &rec); err != nil || rec.Format != workerFormat {
		return false, fmt.Errorf("host %s: %s is no record of a worker (format %q, %v)", wk.host.Name(), workerRecordPath, rec.Format, err)
	}
	if rec.Cluster != c.stack.Cluster {
		return false, fmt.Errorf("host %s is a worker of %s (cluster %s): it has to leave there first", wk.host.Name(), rec.Key, rec.Cluster)
	}
	return true, nil
}

// slurmd is an operation on the worker's daemon, with all a start needs.
func (c *control) slurmd(m, control plan.Member, verb string) runtimes.Op {
	op := c.service(profile.Slurmd, verb)
	op.Service.Params = map[string]string{
		profile.ParamServer:   net.JoinHostPort(control.Address, strconv.Itoa(c.rec.Ports.Slurmctld)),
		profile.ParamNode:     m.Node,
		profile.ParamAddress:  m.Address,
		profile.ParamCPUs:     strconv.Itoa(m.CPUs),
		profile.ParamMemory:   strconv.Itoa(m.MemoryMiB),
		profile.ParamGPUs:     gpuParam(m),
		profile.ParamFeatures: memberFeatures(m),
	}
	return op
}

// awaitNode waits until the controller listens to the node and holds it for
// what it is, and takes a drain of ours back. slurmd exits 0 and never
// registers if anything is wrong with its key.
func (c *control) awaitNode(ctx context.Context, wk site, m plan.Member) error {
	var last node
	err := c.r.poll(ctx, "node "+m.Node+" at "+c.host.Name(), func(ctx context.Context) (bool, string, error) {
		nodes, err := c.nodes(ctx)
		if err != nil {
			return false, err.Error(), nil // the controller may be busy for a moment
		}
		n, ok := findNode(nodes, m.Node)
		if !ok {
			return false, "the controller does not know it", nil
		}
		last = n
		return n.registered() && shaped(n, m), fmt.Sprintf("%s %s, %d CPUs, %d MiB, gres %q, reason %q",
			n.State, strings.Join(n.Flags, "+"), n.CPUs, n.Memory, n.Gres, n.Reason), nil
	})
	if err != nil {
		res, stateErr := wk.do(context.WithoutCancel(ctx), c.service(profile.Slurmd, "state"))
		if stateErr == nil && res[0].Service.Detail != "" {
			return fmt.Errorf("%w; slurmd's log: %s", err, res[0].Service.Detail)
		}
		return err
	}
	if last.flag("DRAIN") && ownDrain(last) {
		return c.undrain(ctx, m.Node)
	}
	return nil
}

func (c *control) undrain(ctx context.Context, name string) error {
	op := c.cli("scontrol", "update", "nodename="+name, "state=undrain")
	return c.r.poll(ctx, "undrain "+name, func(ctx context.Context) (bool, string, error) {
		res, err := c.do(ctx, op)
		if err != nil {
			return false, "", err
		}
		nodes, err := c.nodes(ctx)
		if err != nil {
			return false, "", err
		}
		n, ok := findNode(nodes, name)
		return ok && !n.flag("DRAIN"), c.refused(op, res[0]).Error(), nil
	})
}

// drain keeps new jobs off nodes, and reads back that it does. Nodes that
// somebody else drained stay that person's.
func (c *control) drain(ctx context.Context, reason string, names ...string) error {
	nodes, err := c.nodes(ctx)
	if err != nil {
		return err
	}
	var todo []string
	for _, n := range nodes {
		if slices.Contains(names, n.Name) && !n.flag("DRAIN") {
			todo = append(todo, n.Name)
		}
	}
	if len(todo) == 0 {
		return nil
	}
	op := c.cli("scontrol", "update", "nodename="+strings.Join(todo, ","), "state=drain", "reason="+reason)
	res, err := c.do(ctx, op)
	if err != nil {
		return err
	}
	if nodes, err = c.nodes(ctx); err != nil {
		return err
	}
	for _, name := range todo {
		if n, ok := findNode(nodes, name); ok && !n.flag("DRAIN") {
			return c.refused(op, res[0])
		}
	}
	return nil
}

// forget takes a node out of the controller's memory: without jobs, with its
// slurmd stopped first, as it would come back otherwise. A drain that is
// somebody else's is put on record first: it would be forgotten too.
func (c *control) forget(ctx context.Context, wk site, m plan.Member, n node) error {
	if err := c.drain(ctx, drainLeave+"rejoin", m.Node); err != nil {
		return err
	}
	running, _, err := c.queue(ctx, "--nodelist="+m.Node)
	if err != nil {
		return err
	}
	if len(running) > 0 {
		return waiting("node %s has to join anew, and still has jobs that run", m.Node)
	}
	if n.flag("DRAIN") && !ownDrain(n) {
		if err := c.amend(ctx, func(r *record) { r.keepDrain(m.Node, n.Reason) }); err != nil {
			return err
		}
	}
	if _, err := wk.do(ctx, c.service(profile.Slurmd, "stop")); err != nil {
		return err
	}
	return c.deleteNode(ctx, m.Node)
}

// ownDrain says whether a node was drained by us.
func ownDrain(n node) bool {
	return strings.HasPrefix(n.Reason, drainLeave) || strings.HasPrefix(n.Reason, drainStop)
}

// restoreDrain drains a node anew that somebody else had drained before it was
// forgotten.
func (c *control) restoreDrain(ctx context.Context, m plan.Member) error {
	why, kept := c.rec.Drained[m.Node]
	if !kept {
		return nil
	}
	if err := c.drain(ctx, reasonWords(why), m.Node); err != nil {
		return err
	}
	return c.amend(ctx, func(r *record) { r.keepDrain(m.Node, "") })
}

// reasonWords is a person's reason as it may stand in an argument.
func reasonWords(why string) string {
	why = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || strings.ContainsRune(`"'\`+"`$", r) {
			return '?'
		}
		return r
	}, why)
	if why = strings.TrimSpace(why[:min(len(why), 200)]); why == "" {
		return "drained"
	}
	return why
}

// amend changes the record as it stands on the host, and writes it: for
// actions that go on beside others of the same cluster.
func (c *control) amend(ctx context.Context, change func(*record)) error {
	defer c.r.lock("cluster " + c.stack.Cluster)()
	if err := c.load(ctx); err != nil {
		return err
	}
	change(&c.rec)
	return c.save(ctx)
}

func (c *control) deleteNode(ctx context.Context, name string) error {
	op := c.cli("scontrol", "delete", "nodename="+name)
	return c.r.poll(ctx, "delete node "+name, func(ctx context.Context) (bool, string, error) {
		res, err := c.do(ctx, op)
		if err != nil {
			return false, "", err
		}
		nodes, err := c.nodes(ctx)
		if err != nil {
			return false, "", err
		}
		_, there := findNode(nodes, name)
		return !there, c.refused(op, res[0]).Error(), nil
	})
}

// leave takes a member out: drained, its jobs ended or waited for as the
// instance says, forgotten by the controller, and cleaned.
func (c *control) leave(ctx context.Context, a plan.Action) error {
	defer c.r.lock("cluster " + c.stack.Cluster)()
	if err := c.load(ctx); err != nil {
		return err
	}
	m, ok := c.rec.joined(a.Member)
	if !ok {
		return nil // out already
	}
	nodes, err := c.nodes(ctx)
	if err != nil {
		return err
	}
	wk := c.worker(m)
	if _, known := findNode(nodes, m.Node); known {
		if err := c.close(ctx, nodeThing(m.Node)); err != nil {
			return err
		}
		if err := c.drain(ctx, drainLeave+short(a.ID), m.Node); err != nil {
			return err
		}
		if err := c.clearJobs(ctx, nodeThing(m.Node), "--nodelist="+m.Node); err != nil {
			return err
		}
		if _, err := wk.do(ctx, c.service(profile.Slurmd, "stop")); err != nil {
			return err
		}
		if err := c.deleteNode(ctx, m.Node); err != nil {
			return err
		}
	}
	c.rec.dropGres(m.Node)
	if err := c.writeGres(ctx); err != nil {
		return err
	}
	if err := c.clean(ctx, wk); err != nil {
		return err
	}
	c.rec.dropJoined(m.Name)
	c.rec.Unit.Members = slices.DeleteFunc(c.rec.Unit.Members, func(u plan.Member) bool { return u.Name == m.Name })
	c.rec.reopen(nodeThing(m.Node))
	return c.save(ctx)
}

// short is an action's id as it fits into a reason.
func short(id string) string {
	id = strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '.' || r == '-' {
			return r
		}
		return '.'
	}, id)
	return id[:min(len(id), 40)]
}

// clean takes everything of the cluster off a worker; its record goes last. A
// worker that is another cluster's by now is left alone.
func (c *control) clean(ctx context.Context, wk site) error {
	res, err := wk.do(ctx, readOp(workerRecordPath))
	if err != nil {
		return err
	}
	if res[0].Missing { // cut off after the record went, or never joined
		_, err := wk.do(ctx, removeEmptyOp(profile.InstanceDir))
		return err
	}
	var rec workerRecord
	if err := json.Unmarshal(res[0].Data, &rec); err != nil {
		return fmt.Errorf("host %s: %s: %w", wk.host.Name(), workerRecordPath, err)
	}
	if rec.Cluster != c.stack.Cluster {
		return nil
	}
	ops := []runtimes.Op{c.service(profile.Slurmd, "clear"), c.service(profile.MungedWorker, "clear")}
	ops = append(ops, removeOps(profile.WorkerFiles())...)
	ops = append(ops, removeOp(c.stack.MungeRun()), removeTreeOp(profile.WorkerSpoolDir),
		removeEmptyOp(profile.WorkerMungeRun), removeEmptyOp(profile.WorkerRunDir))
	if err := wk.doAll(ctx, ops); err != nil {
		return err
	}
	earlier, err := c.earlierKey(ctx, wk)
	if err != nil {
		return err
	}
	ops = append(earlier, removeSharedDirs()...)
	ops = append(ops, removeOp(workerRecordPath), removeEmptyOp(profile.InstanceDir))
	// Those on the way in or out are on the instance's record only.
	return c.dropAccounts(ctx, wk, union(rec.Users, c.rec.People), ops...)
}

// earlierKey removes the cluster's key where an earlier release put it, under the
// name of the host's own: only if it is the cluster's key.
func (c *control) earlierKey(ctx context.Context, wk site) ([]runtimes.Op, error) {
	have, err := wk.do(ctx, runtimes.Op{Stat: &runtimes.Stat{Paths: []string{profile.EarlierMungeKey}}})
	if err != nil || !have[0].Stats[0].Made {
		return nil, err
	}
	want, err := c.do(ctx, runtimes.Op{Stat: &runtimes.Stat{Paths: []string{c.stack.MungeKey()}}})
	if err != nil || !want[0].Stats[0].Exists || want[0].Stats[0].SHA256 != have[0].Stats[0].SHA256 {
		return nil, err
	}
	return []runtimes.Op{removeOp(profile.EarlierMungeKey)}, nil
}

// unneeded are those of users that no other instance has on a host.
func (c *control) unneeded(ctx context.Context, s site, users []schema.UnixUser) ([]schema.UnixUser, error) {
	if len(users) == 0 {
		return nil, nil
	}
	here := &control{site: s, log: c.log, r: c.r, key: c.key, stack: c.stack}
	others, err := here.others(ctx)
	if err != nil {
		return nil, err
	}
	var needed []schema.UnixUser
	for _, o := range others {
		needed = append(needed, o.people()...)
	}
	res, err := s.do(ctx, readOp(workerRecordPath))
	if err != nil {
		return nil, err
	}
	var rec workerRecord
	if !res[0].Missing {
		if err := json.Unmarshal(res[0].Data, &rec); err != nil {
			return nil, fmt.Errorf("host %s: %s: %w", s.host.Name(), workerRecordPath, err)
		}
	}
	if rec.Cluster != c.stack.Cluster {
		needed = append(needed, rec.Users...)
	}
	return slices.DeleteFunc(slices.Clone(users), func(u schema.UnixUser) bool { return slices.Contains(needed, u) }), nil
}

// clearJobs makes sure that no job runs on a thing, which filter picks. What is
// in the way is waited for, or cancelled once the instance's rule allows; since
// when it waits is on record.
func (c *control) clearJobs(ctx context.Context, thing string, filter ...string) error {
	running, _, err := c.queue(ctx, filter...)
	if err != nil {
		return err
	}
	if len(running) == 0 {
		return nil
	}
	if err := c.close(ctx, thing); err != nil {
		return err
	}
	// What is said stays the same while it waits, however many jobs end meanwhile:
	// it is shown to people, and every other word of it is a commit.
	rule := c.rec.Unit.Instance.OnJobs
	if rule == nil || rule.CancelAfterSeconds == 0 {
		return waiting("%s still has jobs that run, and on_jobs says wait", thing)
	}
	deadline := c.rec.Closing[thing].Add(time.Duration(rule.CancelAfterSeconds) * time.Second)
	if c.r.now().Before(deadline) {
		return waiting("%s still has jobs that run, which are cancelled at %s", thing, deadline.UTC().Format(time.RFC3339))
	}
	if err := c.cancel(ctx, running); err != nil {
		return err
	}
	return c.r.poll(ctx, "cancel jobs on "+thing, func(ctx context.Context) (bool, string, error) {
		running, _, err := c.queue(ctx, filter...)
		return len(running) == 0, fmt.Sprintf("%d jobs still there", len(running)), err
	})
}

// queue lists the jobs that hold nodes, and those that wait.
func (c *control) queue(ctx context.Context, filter ...string) (running, pending []queued, err error) {
	op := c.cli("squeue", append([]string{"--noheader", "--all", profile.QueueFormat}, filter...)...)
	res, err := c.must(ctx, op)
	if err != nil {
		return nil, nil, err
	}
	jobs, err := parseQueue(res.Data)
	if err != nil {
		return nil, nil, fmt.Errorf("host %s: %w", c.host.Name(), err)
	}
	for _, j := range jobs {
		if j.pending() {
			pending = append(pending, j)
		} else {
			running = append(running, j)
		}
	}
	return running, pending, nil
}
