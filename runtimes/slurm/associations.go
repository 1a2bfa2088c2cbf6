package slurm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/accounting"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/cluster"
	"berth/schema"
)

// associations keeps the accounting of the cluster as declared: users and their accounts
// on hosts, and the entries of slurmdbd. The exit status of sacctmgr says nothing, so
// every change is read back.
type associations struct {
	*control
	users hostUsers
	jobs  jobQueue
	// limit is that of each question to slurmdbd; 0: that of sacctmgr.
	limit time.Duration
}

// inController returns the users with an association in slurmctld, which gets changes a
// moment after slurmdbd.
func (c associations) inController(ctx context.Context) ([]string, error) {
	all, err := ask(ctx, c.control, cli.Associations())
	var names []string
	for _, a := range all {
		if a.User != "" && a.User != accounting.Root {
			names = append(names, a.User)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

// await waits until slurmctld has exactly the declared users.
func (c associations) await(ctx context.Context) error {
	return c.env.poll(ctx, "associations at "+c.host.Name(), func(ctx context.Context) (bool, string, error) {
		have, err := c.inController(ctx)
		if err != nil {
			return false, "", err
		}
		return slices.Equal(have, cluster.UserNames(c.rec.users())), "users who may submit: " + strings.Join(have, ", "), nil
	})
}

// read returns the accounting in slurmdbd, and the results of other operations, which it does before.
// It asks for all lists at the same time, as a call of sacctmgr 22.05 sleeps for most
// of its 0.2 to 0.4 s.
func (c associations) read(ctx context.Context, before ...runtimes.Op) (accounting.Tree, []runtimes.Result, error) {
	var done []runtimes.Result
	if len(before) > 0 {
		var err error
		if done, err = c.do(ctx, before...); err != nil {
			return accounting.Tree{}, done, err
		}
	}
	type list struct {
		rows [][]string
		err  error
	}
	var rows [][][]string
	for _, l := range inParallel(accounting.Queries(c.stack.Cluster), func(q cli.Query[[][]string]) list {
		op := queryOp(c.control, q)
		if c.limit > 0 {
			op.Run.TimeoutMS = int(c.limit.Milliseconds())
		}
		res, err := c.do(ctx, op)
		if err != nil {
			return list{err: err}
		}
		one, err := answer(c.site, q, res[0])
		return list{one, err}
	}) {
		if l.err != nil {
			return accounting.Tree{}, done, l.err
		}
		rows = append(rows, l.rows)
	}
	tree, err := accounting.Read(c.stack.Cluster, rows)
	if err != nil {
		return tree, done, fmt.Errorf("host %s: %w", c.host.Name(), err)
	}
	c.seen = &tree
	return tree, done, nil
}

// add makes accounts on every host before it adds users to Slurm: slurmctld
// refuses a name that does not resolve then for as long as it runs. It makes all changes
// of the accounting that remove nothing. A faulty worker is ErrWaiting, and so is a user
// without an account on the control host, or whose name or uid is taken on a worker: that user is
// not added to Slurm.
func (c associations) add(ctx context.Context) error {
	users := c.rec.users()
	for _, u := range users {
		if err := cluster.CheckUser(u); err != nil {
			return err
		}
	}
	var made, onWorkers, unread error
	var have accounting.Tree
	var taken []string // on workers
	var mu sync.Mutex
	var all sync.WaitGroup
	all.Go(func() { made = c.users.make(ctx, c.site, users) })
	all.Go(func() {
		onWorkers = c.tryWorkers(ctx, func(ctx context.Context, wk site, m plan.Member) error {
			err := c.users.makeOnWorker(ctx, wk, users)
			mu.Lock()
			defer mu.Unlock()
			taken = append(taken, lackingIn(err).taken...)
			return err
		})
	})
	all.Go(func() { have, _, unread = c.read(ctx) }) // meanwhile, as it takes longer
	all.Wait()
	var waits waitList
	if err := cmp.Or(waits.unless(asWaiting(made)), waits.unless(onWorkers), unread); err != nil {
		return err
	}
	if err := waits.unless(c.settle(ctx, have, append(lackingIn(made).names, taken...))); err != nil {
		return err
	}
	return waits.err()
}

// settleNow reads the accounting in slurmdbd and calls settle with it.
func (c associations) settleNow(ctx context.Context) error {
	have, _, err := c.read(ctx)
	if err != nil {
		return err
	}
	return c.settle(ctx, have, nil)
}

// settle makes the changes in slurmdbd that remove nothing, and waits until slurmctld knows
// new QoS: its file may name them next. It adds none of the lacking users.
func (c associations) settle(ctx context.Context, have accounting.Tree, lacking []string) error {
	want, err := c.rec.accounting()
	if err != nil {
		return err
	}
	maps.DeleteFunc(want.Users, func(name string, _ accounting.User) bool {
		_, ok := have.Users[name]
		return !ok && slices.Contains(lacking, name)
	})
	waits, err := c.leaveWithdrawn(ctx, have, want)
	if err != nil {
		return err
	}
	lacks := func(have accounting.Tree) []accounting.Change {
		changes, _ := accounting.Split(accounting.Diff(have, want))
		return changes
	}
	changes := lacks(have)
	if err := c.apply(ctx, have, lacks); err != nil {
		return err
	}
	if _, err := c.leaveWithdrawn(ctx, have, want); err != nil { // jobs may have come since
		return err
	}
	for name := range want.Users {
		c.rec.reopen(userTarget(name))
	}
	for name := range want.QoS {
		c.rec.reopen(qosTarget(name))
	}
	if !slices.ContainsFunc(changes, func(ch accounting.Change) bool { return ch.Kind == accounting.OfQoS && ch.Verb == accounting.Add }) {
		return waits.err()
	}
	return cmp.Or(c.env.poll(ctx, "QoS at "+c.host.Name(), func(ctx context.Context) (bool, string, error) {
		known, err := ask(ctx, c.control, cli.QoSNames())
		for name := range want.QoS {
			if !slices.Contains(known, name) {
				return false, "slurmctld knows " + strings.Join(known, ", "), err
			}
		}
		return true, "", err
	}), waits.err())
}

// leaveWithdrawn moves the pending jobs of users from QoS that these lose in want: slurmctld
// would never start them. Users with a job that slurmctld does not move stay in want as they are,
// and waits says so.
func (c associations) leaveWithdrawn(ctx context.Context, have, want accounting.Tree) (waits waitList, err error) {
	withdrawn := accounting.Withdrawn(have, want)
	for _, name := range slices.Sorted(maps.Keys(withdrawn)) {
		filter := only("--qos=" + name)
		for _, u := range c.rec.people() {
			if slices.Contains(withdrawn[name], u.Name) {
				filter.uids = append(filter.uids, u.UID)
			}
		}
		if filter.uids == nil {
			continue // users that a person has added
		}
		before := len(waits)
		if err := waits.unless(c.leaveQoS(ctx, name, filter, want)); err != nil {
			return nil, err
		}
		for _, user := range withdrawn[name] {
			if len(waits) > before {
				want.Users[user] = have.Users[user]
			}
		}
	}
	return waits, nil
}

// apply makes the changes that lacks returns for the accounting in slurmdbd, and reads back that they are made. If slurmdbd
// adds nothing, its memory differs from its database, such as after a restore, and apply restarts it once.
func (c associations) apply(ctx context.Context, have accounting.Tree, lacks func(accounting.Tree) []accounting.Change) error {
	restarted := false
	for changes := lacks(have); len(changes) > 0; {
		calls, res, err := c.call(ctx, changes)
		if err != nil {
			return err
		}
		have, _, err := c.read(ctx)
		if err != nil {
			return err
		}
		changes = lacks(have)
		isAddition := func(ch accounting.Change) bool { return ch.Verb == accounting.Add }
		switch {
		case len(changes) == 0:
		case restarted || !slices.ContainsFunc(changes, isAddition):
			return c.notChanged(changes[0], calls, res)
		default:
			c.log.Warn("slurmdbd restarted: it did not keep what sacctmgr added", "host", c.host.Name(), "cluster", c.stack.Cluster)
			if _, err := (controlDaemons{c.control}).bring(ctx, controlDaemons{c.control}.slurmdbd(), true); err != nil {
				return err
			}
			restarted = true
		}
	}
	return nil
}

// notChanged describes a change that was not made, with what sacctmgr said.
func (c associations) notChanged(ch accounting.Change, calls []runtimes.Op, res []runtimes.Result) error {
	err := fmt.Errorf("host %s: sacctmgr did not change this: %s; if it gives no reason, see %s/slurmdbd.log", c.host.Name(), ch,
		c.stack.Log())
	for i, r := range res {
		if r.Exit != 0 {
			err = errors.Join(err, c.exitError(calls[i], r))
		}
	}
	return err
}

// call makes changes. It ignores the exit status of sacctmgr.
func (c associations) call(ctx context.Context, changes []accounting.Change) (calls []runtimes.Op, res []runtimes.Result, err error) {
	for _, ch := range changes {
		calls = append(calls, c.sacctmgr(ch.Args(c.stack.Cluster)...))
	}
	for part := range slices.Chunk(calls, batch) {
		some, err := c.do(ctx, part...)
		if res = append(res, some...); err != nil {
			return calls, res, err
		}
	}
	return calls, res, nil
}

// remove removes the users, accounts and QoS that are no longer declared from Slurm, each once it has no jobs,
// and then the accounts of users on hosts. One that waits
// delays no other, except that accounts go after all their users.
func (c associations) remove(ctx context.Context) error {
	want, err := c.rec.accounting()
	if err != nil {
		return err
	}
	have, gone, err := c.undeclared(ctx, want)
	if err != nil {
		return err
	}
	c.reopenRemoved(gone)
	var users, others waitList
	kept := map[string]bool{} // accounts that are still to be removed
	for _, ch := range gone {
		if ch.Kind == accounting.OfAccount {
			kept[ch.Names[0]] = true
		}
	}
	for _, ch := range gone {
		switch ch.Kind {
		case accounting.OfUser, accounting.OfAssociation:
			err = users.unless(c.removeUsers(ctx, ch, have))
		case accounting.OfAccount:
			if len(users) > 0 {
				continue
			}
			before := len(others)
			err = others.unless(c.removeAccount(ctx, ch))
			kept[ch.Names[0]] = len(others) > before
		case accounting.OfQoS:
			if isDefaultOf(have, kept, ch.Names[0]) {
				continue // slurmdbd refuses to remove it
			}
			err = others.unless(c.removeQoS(ctx, ch, want))
		}
		if err != nil {
			return err
		}
	}
	if len(users) == 0 {
		if err := others.unless(c.users.removeUndeclared(ctx)); err != nil {
			return err
		}
	}
	return append(users, others...).err()
}

// undeclared returns the accounting in slurmdbd, and what it has to lose.
func (c associations) undeclared(ctx context.Context, want accounting.Tree) (have accounting.Tree, gone []accounting.Change, err error) {
	if c.seen != nil { // by add, a moment ago
		if _, gone = accounting.Split(accounting.Diff(*c.seen, want)); len(gone) == 0 {
			return *c.seen, nil, nil
		}
	}
	if have, _, err = c.read(ctx); err == nil {
		_, gone = accounting.Split(accounting.Diff(have, want))
	}
	return have, gone, err
}

// reopenRemoved ends the closing of users, accounts and QoS that are removed already, or attached
// again: a configure may have failed after that.
func (c associations) reopenRemoved(gone []accounting.Change) {
	var closing []string
	for _, ch := range gone {
		for _, name := range ch.Names {
			closing = append(closing, accessTarget(name, ch.Account), qosTarget(name))
		}
	}
	for _, a := range c.rec.Detaching {
		closing = append(closing, accountTarget(a.ProjectID))
	}
	for target := range c.rec.Closing {
		isOurs := slices.ContainsFunc([]string{userTarget(""), qosTarget(""), accountTarget("")},
			func(kind string) bool { return strings.HasPrefix(target, kind) })
		if isOurs && !slices.Contains(closing, target) {
			c.rec.reopen(target)
		}
	}
}

// removeUsers removes users, or their access to an account. They cannot submit from now
// on. Those without jobs are removed in one call.
func (c associations) removeUsers(ctx context.Context, ch accounting.Change, have accounting.Tree) error {
	if err := c.closeUsers(ctx, ch, have); err != nil {
		return err
	}
	all := jobFilter{}
	if ch.Account != "" {
		all = only("--account=" + ch.Account)
	}
	running, pending, err := c.jobs.list(ctx, all)
	if err != nil {
		return err
	}
	owners := map[int]bool{}
	for _, j := range slices.Concat(running, pending) {
		owners[j.UID] = true
	}
	var waits waitList
	var idle []string
	for _, name := range ch.Names {
		before, jobs := len(waits), c.jobsOf(name, ch.Account)
		if len(jobs.uids) == 0 || owners[jobs.uids[0]] {
			if err := waits.unless(c.endJobs(ctx, accessTarget(name, ch.Account), jobs)); err != nil {
				return err
			}
		}
		if len(waits) == before {
			idle = append(idle, name)
		}
	}
	if ch.Names = idle; len(idle) > 0 {
		if err := c.delete(ctx, ch); err != nil {
			return err
		}
	}
	for _, name := range idle {
		c.rec.reopen(accessTarget(name, ch.Account))
	}
	return waits.err()
}

// closeUsers keeps users, or their access to an account, from submitting.
func (c associations) closeUsers(ctx context.Context, ch accounting.Change, have accounting.Tree) error {
	var open []string
	for _, name := range ch.Names {
		if err := c.close(ctx, accessTarget(name, ch.Account)); err != nil {
			return err
		}
		if !have.IsClosed(name, ch.Account) {
			open = append(open, name)
		}
	}
	if len(open) == 0 {
		return nil
	}
	_, err := c.runChecked(ctx, c.sacctmgr(accounting.Close(open, ch.Account).Args(c.stack.Cluster)...))
	return err
}

// endJobs cancels pending jobs and ends running ones by on_jobs.
func (c associations) endJobs(ctx context.Context, target string, filter jobFilter) error {
	if err := c.jobs.cancelPending(ctx, filter); err != nil {
		return err
	}
	return c.jobs.end(ctx, target, filter)
}

// accessTarget is a user, or a user's access to an account, that is being closed.
func accessTarget(name, account string) string {
	if account == "" {
		return userTarget(name)
	}
	return userTarget(name) + " in account " + account
}

// jobsOf returns the filter of the jobs of a user, in an account or in all.
func (c associations) jobsOf(name, account string) jobFilter {
	var f jobFilter
	if account != "" {
		f = only("--account=" + account)
	}
	people := c.rec.people()
	if i := slices.IndexFunc(people, func(u schema.UnixUser) bool { return u.Name == name }); i >= 0 {
		f.uids = []int{people[i].UID}
	} else { // a person has added the user
		f.options = append(f.options, "--user="+name)
	}
	return f
}

// removeQoS removes a QoS, which no association has any more, once no partition names it
// and no job has it. Without the first, Slurm 26.05 opens the partition to every
// QoS, and slurmctld 24.11 may end. Its pending jobs go on with the default QoS.
func (c associations) removeQoS(ctx context.Context, ch accounting.Change, want accounting.Tree) error {
	name := ch.Names[0]
	if err := c.close(ctx, qosTarget(name)); err != nil {
		return err
	}
	partitions, err := ask(ctx, c.control, cli.Partitions())
	if err != nil {
		return err
	}
	for _, p := range partitions {
		if slices.Contains(p.QoS, name) {
			return waiting("QoS %s is still named by partition %s", name, p.Name)
		}
	}
	if err := c.leaveQoS(ctx, name, only("--qos="+name), want); err != nil {
		return err
	}
	rule := c.rec.Unit.Effective.OnJobs
	if strings.HasSuffix(name, cluster.GuaranteedSuffix) {
		rule = nil // the project loses its guarantee, and none of its jobs
	}
	if err := c.jobs.endBy(ctx, rule, qosTarget(name), only("--qos="+name)); err != nil {
		return err
	}
	if err := c.delete(ctx, ch); err != nil {
		return err
	}
	c.rec.reopen(qosTarget(name))
	return nil
}

// leaveQoS moves the pending jobs that filter selects from a QoS to the default one of their
// account.
func (c associations) leaveQoS(ctx context.Context, name string, filter jobFilter, want accounting.Tree) error {
	_, pending, err := c.jobs.list(ctx, filter)
	if err != nil || len(pending) == 0 {
		return err
	}
	why := "" // of the first job that slurmctld refused to move
	for _, account := range slices.Sorted(maps.Keys(want.Accounts)) {
		standard := cmp.Or(want.Accounts[account].Settings["defaultqos"], accounting.Normal)
		_, pending, err := c.jobs.list(ctx,
			jobFilter{options: append([]string{"--account=" + account}, filter.options...), uids: filter.uids})
		if err != nil {
			return err
		}
		refused, err := c.jobs.update(ctx, pending, func(cli.Queued) string { return "qos=" + standard })
		if err != nil {
			return err
		}
		why = cmp.Or(why, refused)
	}
	if _, pending, err = c.jobs.list(ctx, filter); err != nil {
		return err
	}
	if len(pending) > 0 { // such as one that is longer than the other QoS allows
		said := fmt.Sprintf("job %s still waits in QoS %s, and slurmctld does not move it to the default QoS of its account: change the "+
			"job, or cancel it", pending[0].ID, name)
		if why != "" {
			said += ": " + why
		}
		return waiting("%s", said)
	}
	return nil
}

// delete makes a change that removes something without jobs.
func (c associations) delete(ctx context.Context, ch accounting.Change) error {
	call := c.sacctmgr(ch.Args(c.stack.Cluster)...)
	began := time.Now()
	return c.env.poll(ctx, "remove "+ch.String(), func(ctx context.Context) (bool, string, error) {
		have, res, err := c.read(ctx, call)
		if err != nil || !have.Has(ch) {
			return true, "", err
		}
		seen := c.exitError(call, res[0]).Error()
		if !strings.Contains(seen, "Job(s) active") {
			return false, seen, nil
		}
		// slurmdbd gets the end of a job late, and that of a lost job never. A lost job
		// whose id another job has is ended some minutes after that one.
		if err := (jobRecords{c.control}).endRunaways(ctx); err != nil || time.Since(began) < c.env.timeouts.Ready/2 {
			return false, seen, err
		}
		return false, seen, waiting("accounting has jobs as active that have ended: %s", seen)
	})
}

// removeAccount removes an account without users once no partition of slurmctld names it.
func (c associations) removeAccount(ctx context.Context, ch accounting.Change) error {
	partitions, err := ask(ctx, c.control, cli.Partitions())
	if err != nil {
		return err
	}
	for _, p := range partitions {
		if slices.Contains(p.Accounts, ch.Names[0]) {
			return waiting("account %s is still named by partition %s", ch.Names[0], p.Name)
		}
	}
	return c.delete(ctx, ch)
}

// isDefaultOf reports whether a QoS is the default of an account that is kept.
func isDefaultOf(have accounting.Tree, kept map[string]bool, qos string) bool {
	for name, isKept := range kept {
		if isKept && have.Accounts[name].Settings["defaultqos"] == qos {
			return true
		}
	}
	return false
}
