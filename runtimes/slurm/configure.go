package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// configure brings a complete control stack to what the plan says: people
// first, then files, then people who are gone. Files that turn out not to work
// are taken back.
func (c *control) configure(ctx context.Context, after *plan.Unit) error {
	defer c.r.lock("cluster " + c.stack.Cluster)()
	if err := c.load(ctx); err != nil {
		return err
	}
	if err := c.name(ctx, after.Instance.Users); err != nil {
		return err
	}
	c.rec.Unit = *after
	c.rec.Gres = c.gresOf(ctx, after)

	if err := c.addPeople(ctx); err != nil {
		return err
	}
	if err := c.replaceFiles(ctx); err != nil {
		return err
	}
	if err := c.removePeople(ctx); err != nil {
		return err
	}
	if err := c.awaitPeople(ctx); err != nil {
		return err
	}
	c.rec.People = nil
	return c.save(ctx)
}

// live is who may submit as slurmctld has it, which hears of a change a moment
// after slurmdbd.
func (c *control) live(ctx context.Context) ([]string, error) {
	res, err := c.must(ctx, c.cli("scontrol", "show", "assoc_mgr", "flags=assoc"))
	return parseAssociated(res.Data), err
}

// awaitPeople waits until slurmctld lets those submit who are declared.
func (c *control) awaitPeople(ctx context.Context) error {
	return c.r.poll(ctx, "associations at "+c.host.Name(), func(ctx context.Context) (bool, string, error) {
		have, err := c.live(ctx)
		if err != nil {
			return false, "", err
		}
		return slices.Equal(have, names(c.rec.Unit.Instance.Users)), "people who may submit: " + strings.Join(have, ", "), nil
	})
}

// names are the names of people, sorted.
func names(users []schema.UnixUser) []string {
	var out []string
	for _, u := range users {
		out = append(out, u.Name)
	}
	slices.Sort(out)
	return out
}

// gresOf is what of gres.conf the members of u may have: those that were
// checked before, those whose devices are there now, and those that have not
// left yet. Who has not got its devices gets no line; its join tells.
func (c *control) gresOf(ctx context.Context, u *plan.Unit) []gresLine {
	next := record{}
	for _, m := range c.rec.Joined {
		next.setGres(m)
	}
	var fresh []plan.Member
	for _, m := range u.Members {
		if _, in := c.rec.joined(m.Name); !in {
			fresh = append(fresh, m)
		}
	}
	lacking := c.missingDevices(ctx, fresh)
	for _, m := range fresh {
		if err := lacking[m.Name]; err != nil {
			c.log.Warn("no line in gres.conf", "worker", m.Name, "reason", err.Error())
			continue
		}
		next.setGres(m)
	}
	return next.Gres
}

// associated are the people Slurm lets submit.
func (c *control) associated(ctx context.Context) ([]string, error) {
	res, err := c.must(ctx, c.cli("sacctmgr", "-i", "-n", "-P", "list", "assoc", "cluster="+c.stack.Cluster, "account="+account, "format=user"))
	if err != nil {
		return nil, err
	}
	return strings.Fields(string(res.Data)), nil
}

// sameUsers reads a list of associations: whether all users are in it.
func (c *control) sameUsers(res runtimes.Result, users []schema.UnixUser) error {
	have := strings.Fields(string(res.Data))
	for _, u := range users {
		if !slices.Contains(have, u.Name) {
			return fmt.Errorf("host %s: user %s has no association with cluster %s: %s", c.host.Name(), u.Name, c.stack.Cluster, strings.TrimSpace(string(res.Stderr)))
		}
	}
	return nil
}

// addPeople makes accounts on every host before Slurm hears of them: a name
// that does not resolve then is refused for as long as slurmctld runs.
func (c *control) addPeople(ctx context.Context) error {
	users := c.rec.Unit.Instance.Users
	for _, u := range users {
		if err := checkUser(u); err != nil {
			return err
		}
	}
	if err := c.makeUsers(ctx, c.site, users); err != nil {
		return err
	}
	if err := c.onWorkers(ctx, func(ctx context.Context, wk site, m plan.Member) error {
		return c.makeUsers(ctx, wk, users)
	}); err != nil {
		return err
	}
	have, err := c.associated(ctx)
	if err != nil {
		return err
	}
	var missing, closed []string
	for _, u := range users {
		if !slices.Contains(have, u.Name) {
			missing = append(missing, u.Name)
		}
		if c.rec.closing(userThing(u.Name)) {
			closed = append(closed, u.Name)
		}
	}
	if len(closed) > 0 { // were on their way out, and are wanted again
		reopen := c.cli("sacctmgr", "-i", "modify", "user", "where", "name="+strings.Join(closed, ","), "cluster="+c.stack.Cluster, "set", "maxsubmitjobs=-1")
		if _, err := c.do(ctx, reopen); err != nil { // it also fails if it finds nothing to do
			return err
		}
		for _, name := range closed {
			c.rec.reopen(userThing(name))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	// One call for many: each costs a third of a second, however many it names.
	add := c.cli("sacctmgr", "-i", "add", "user", strings.Join(missing, ","), "account="+account, "cluster="+c.stack.Cluster, "defaultaccount="+account)
	list := c.cli("sacctmgr", "-i", "-n", "-P", "list", "assoc", "cluster="+c.stack.Cluster, "account="+account, "format=user")
	res, err := c.do(ctx, add, list)
	if err != nil {
		return err
	}
	if err := c.sameUsers(res[1], users); err != nil {
		return errors.Join(err, c.refused(add, res[0]))
	}
	return nil
}

// removePeople takes the right to submit from those who are not declared any
// more, once no job of theirs is in the way, and then their accounts.
func (c *control) removePeople(ctx context.Context) error {
	have, err := c.associated(ctx)
	if err != nil {
		return err
	}
	keep := map[string]bool{}
	for _, u := range c.rec.Unit.Instance.Users {
		keep[u.Name] = true
	}
	var gone []string
	for _, name := range have {
		if !keep[name] {
			gone = append(gone, name)
		}
	}
	if len(gone) > 0 {
		names := strings.Join(gone, ",")
		for _, name := range gone {
			if err := c.close(ctx, userThing(name)); err != nil {
				return err
			}
		}
		closeOp := c.cli("sacctmgr", "-i", "modify", "user", "where", "name="+names, "cluster="+c.stack.Cluster, "set", "maxsubmitjobs=0")
		if _, err := c.must(ctx, closeOp); err != nil {
			return err
		}
		for _, name := range gone {
			if err := c.cancelPending(ctx, "--user="+name); err != nil {
				return err
			}
			if err := c.clearJobs(ctx, userThing(name), "--user="+name); err != nil {
				return err
			}
			c.rec.reopen(userThing(name))
		}
		remove := c.cli("sacctmgr", "-i", "delete", "user", "name="+names, "cluster="+c.stack.Cluster)
		if err := c.r.poll(ctx, "remove "+names+" from cluster "+c.stack.Cluster, func(ctx context.Context) (bool, string, error) {
			res, err := c.do(ctx, remove)
			if err != nil {
				return false, "", err
			}
			left, err := c.associated(ctx)
			return !slices.ContainsFunc(gone, func(n string) bool { return slices.Contains(left, n) }), c.refused(remove, res[0]).Error(), err
		}); err != nil {
			return err
		}
	}
	return c.removeAccounts(ctx)
}

// removeAccounts takes the accounts of people who may have one, and are not
// declared any more, from the hosts that no other instance needs them on. What
// a worker has is on its record, which is brought up to date.
func (c *control) removeAccounts(ctx context.Context) error {
	set, err := parseSettings(c.rec.Unit.Instance.Config)
	if err != nil {
		return err
	}
	now, gone := c.rec.Unit.Instance.Users, c.rec.leftover()
	if set.Identity != identityManaged {
		gone, now = nil, nil
	}
	if err := c.dropAccounts(ctx, c.site, gone); err != nil {
		return err
	}
	return c.onWorkers(ctx, func(ctx context.Context, wk site, m plan.Member) error {
		mine := workerRecord{Format: workerFormat, Cluster: c.stack.Cluster, Key: c.key, Node: m.Node, Users: now}
		return c.dropAccounts(ctx, wk, gone, writeOp(workerRecordPath, file{mine.encode(), 0o600, ""}))
	})
}

// dropAccounts takes the accounts of those of users from a host that no other
// instance there needs, and then does more. Nobody gets to need one meanwhile.
func (c *control) dropAccounts(ctx context.Context, s site, users []schema.UnixUser, more ...runtimes.Op) error {
	defer c.r.lock("host " + s.host.Name())()
	unneeded, err := c.unneeded(ctx, s, users)
	if err != nil {
		return err
	}
	return s.doAll(ctx, append(userOps(unneeded, true), more...))
}

// onWorkers does something on every joined worker at once. One that cannot be
// reached is passed over: its record shows that it has not kept up, and so
// will an observation once it is back.
func (c *control) onWorkers(ctx context.Context, f func(context.Context, site, plan.Member) error) error {
	var g errgroup.Group // one that fails must not cut another off half way
	for _, m := range c.rec.Joined {
		g.Go(func() error {
			err := f(ctx, c.worker(m), m)
			if errors.Is(err, runtimes.ErrUnreachable) {
				c.log.Warn("a worker is passed over", "worker", m.Name, "reason", err.Error())
				return nil
			}
			return err
		})
	}
	return g.Wait()
}

// cancelPending cancels the jobs of filter that hold no node.
func (c *control) cancelPending(ctx context.Context, filter ...string) error {
	_, pending, err := c.queue(ctx, filter...)
	if err != nil || len(pending) == 0 {
		return err
	}
	return c.cancel(ctx, pending)
}

// cancel cancels jobs, however many they are: a call takes a bounded number of
// arguments.
func (c *control) cancel(ctx context.Context, jobs []queued) error {
	for ids := range slices.Chunk(jobIDs(jobs), 500) {
		if _, err := c.do(ctx, c.cli("scancel", ids...)); err != nil {
			return err
		}
	}
	return nil
}

// replaceFiles writes what differs, by the gentlest means that works, and
// proves it: slurmctld answers and runs what the file says, every node that
// was registered still is, every worker has the new file. Else the old files
// come back.
func (c *control) replaceFiles(ctx context.Context) error {
	rendered, err := files(&c.rec)
	if err != nil {
		return err
	}
	paths := slices.Sorted(maps.Keys(rendered))
	var reads []runtimes.Op
	for _, p := range paths {
		reads = append(reads, readOp(p))
	}
	res, err := c.do(ctx, append(reads, c.cli("scontrol", "show", "config"), c.cli("sinfo", "--json"))...)
	if err != nil {
		return err
	}
	old := map[string]file{}
	changed := map[string]file{}
	for i, p := range paths {
		if !res[i].Missing {
			old[p] = file{res[i].Data, rendered[p].mode, rendered[p].owner}
		}
		if res[i].Missing || !bytes.Equal(res[i].Data, rendered[p].data) {
			changed[p] = rendered[p]
		}
	}
	how := c.effect(changed, old[c.stack.Conf()].data, rendered[c.stack.Conf()].data)
	if !hashMatches(res[len(paths)]) {
		how = max(how, reconfigure) // something was written and never read
	}
	for _, p := range partitionsOf(rendered[c.stack.Conf()].data) {
		if c.rec.closing(partitionThing(p)) {
			how = max(how, reconfigure) // was on its way out, and is wanted again
			c.rec.reopen(partitionThing(p))
		}
	}
	nodes, _, err := parseNodes(res[len(paths)+1].Data)
	if err != nil {
		return err
	}
	_, dbd := changed[c.stack.DBDConf()]
	todo := c.disk.Owed.or(owed{Restart: how == restart, Reconfigure: how >= live, Database: dbd})
	if len(changed) == 0 && todo == (owed{}) {
		return nil
	}
	before, err := files(&c.disk) // as it last worked, whatever a person made of it since
	if err != nil {
		return err
	}
	if err := c.closePartitions(ctx, rendered[c.stack.Conf()].data); err != nil {
		return err
	}
	// On record before it is written: who comes after a crash finds files that
	// differ from nothing, and must know all the same what has to follow.
	if err := c.owe(ctx, todo); err != nil {
		return err
	}
	ops := writeOps(changed)
	if was, ok := old[c.stack.Conf()]; ok {
		ops = append([]runtimes.Op{writeOp(c.stack.Conf()+".previous", was)}, ops...)
	}
	if _, err := c.do(ctx, ops...); err != nil {
		return err
	}
	err = c.putIntoEffect(ctx, todo)
	if err == nil {
		err = c.prove(ctx, nodes)
	}
	if err == nil {
		return c.paid(ctx, todo)
	}
	if errors.Is(err, runtimes.ErrUncertain) || errors.Is(err, runtimes.ErrUnreachable) || errors.Is(err, runtimes.ErrStaleEpoch) {
		return err // nobody is there to roll back
	}
	if back := c.rollBack(context.WithoutCancel(ctx), before, todo); back != nil {
		return fmt.Errorf("%w; and the old configuration could not be brought back: %w", err, back)
	}
	return fmt.Errorf("the old configuration is back, as the new one did not work: %w", err)
}

// effect is what it takes to bring changed files into effect.
func (c *control) effect(changed map[string]file, before, after []byte) class {
	how := classify(before, after)
	for p := range changed {
		switch p {
		case c.stack.Conf(), c.stack.Accounts(), c.stack.DBDConf():
		default:
			how = max(how, reconfigure)
		}
	}
	return how
}

// putIntoEffect does what is owed, and waits until slurmctld runs what its file
// says.
func (c *control) putIntoEffect(ctx context.Context, todo owed) error {
	if todo.Database {
		if _, err := c.do(ctx, c.service(profile.Slurmdbd, "restart"), c.waitSlurmdbd()); err != nil {
			return err
		}
	}
	if todo.Restart {
		if _, err := c.do(ctx, c.service(profile.Slurmctld, "restart")); err != nil {
			return err
		}
		if err := c.awaitController(ctx); err != nil {
			return err
		}
	}
	if todo.Restart || todo.Settle {
		if err := c.settle(ctx); err != nil {
			return err
		}
	}
	if todo.Restart || todo.Reconfigure || todo.Settle { // a start pushes nothing to the nodes that run
		if _, err := c.must(ctx, c.cli("scontrol", "reconfigure")); err != nil {
			return err
		}
	}
	return c.awaitController(ctx)
}

// prove reads back that nothing was lost on the way.
func (c *control) prove(ctx context.Context, before []node) error {
	err := c.r.poll(ctx, "nodes at "+c.host.Name(), func(ctx context.Context) (bool, string, error) {
		nodes, err := c.nodes(ctx)
		if err != nil {
			return false, "", err
		}
		for _, was := range before {
			if n, ok := findNode(nodes, was.Name); was.registered() && (!ok || !n.registered()) {
				return false, fmt.Sprintf("node %s was %s and is %s %s", was.Name, was.State, n.State, strings.Join(n.Flags, "+")), nil
			}
		}
		return true, "", nil
	})
	if err != nil {
		return err
	}
	return c.onWorkers(ctx, func(ctx context.Context, wk site, m plan.Member) error {
		if n, ok := findNode(before, m.Node); !ok || !n.registered() {
			return nil
		}
		show := cliOp(profile.WorkerConfLink+"/slurm.conf", c.r.timeouts.Call, "scontrol", "show", "config")
		return c.r.poll(ctx, "configuration on "+m.Node, func(ctx context.Context) (bool, string, error) {
			res, err := wk.do(ctx, show)
			if err != nil {
				return false, "", err
			}
			return hashMatches(res[0]), "another than the controller's, or none that can be read", nil
		})
	})
}

func (c *control) rollBack(ctx context.Context, old map[string]file, todo owed) error {
	if _, err := c.do(ctx, writeOps(old)...); err != nil {
		return err
	}
	res, err := c.do(ctx, c.cli("scontrol", "ping"))
	if err != nil {
		return err
	}
	todo.Restart = todo.Restart || !pingUp(res[0].Data)
	if err := c.putIntoEffect(ctx, todo); err != nil {
		return err
	}
	// That opened every partition again.
	for thing := range c.disk.Closing {
		if strings.HasPrefix(thing, partitionThing("")) {
			c.disk.reopen(thing)
		}
	}
	c.rec.Owed, c.disk.Owed = owed{}, owed{}
	_, err = c.do(ctx, c.writeRecord(&c.disk))
	return err
}

// closePartitions clears partitions that go: those slurmctld has, whatever the
// file says. Slurm ends their jobs without a word when their line is gone, so
// none may be there, and none may start meanwhile: an inactive partition starts
// none, where a draining one still starts those that are queued.
func (c *control) closePartitions(ctx context.Context, after []byte) error {
	res, err := c.must(ctx, c.cli("scontrol", "show", "partitions"))
	if err != nil {
		return err
	}
	stay := partitionsOf(after)
	for _, p := range parsePartitions(res.Data) {
		if slices.Contains(stay, p) {
			continue
		}
		if err := c.close(ctx, partitionThing(p)); err != nil {
			return err
		}
		if _, err := c.must(ctx, c.cli("scontrol", "update", "partitionname="+p, "state=inactive")); err != nil {
			return err
		}
		if err := c.clearJobs(ctx, partitionThing(p), "--partition="+p); err != nil {
			return err
		}
		// Only now: as long as its jobs are waited for, it may be wanted again.
		if err := c.cancelPending(ctx, "--partition="+p); err != nil {
			return err
		}
		if err := c.clearJobs(ctx, partitionThing(p), "--partition="+p); err != nil {
			return err
		}
		c.rec.reopen(partitionThing(p))
	}
	return nil
}
