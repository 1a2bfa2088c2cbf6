package slurm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/cli"
	"berth/schema"
)

// associations makes users known to Slurm.
type associations struct {
	*control
	users hostUsers
	jobs  jobQueue
}

// inController returns the users of the cluster in slurmctld, which gets
// changes a moment after slurmdbd.
func (c associations) inController(ctx context.Context) ([]string, error) {
	all, err := ask(ctx, c.control, cli.Associations())
	var names []string
	for _, a := range all {
		if a.Account == account && a.User != "" {
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
		return slices.Equal(have, names(c.rec.Unit.Instance.Users)), "users who may submit: " + strings.Join(have, ", "), nil
	})
}

// names returns the sorted names of users.
func names(users []schema.UnixUser) []string {
	var out []string
	for _, u := range users {
		out = append(out, u.Name)
	}
	slices.Sort(out)
	return out
}

// listQuery asks slurmdbd for the users with an account. The account itself is a row
// without a user.
func (c associations) listQuery() cli.Query[[][]string] {
	return cli.List("assoc", []string{"cluster=" + c.stack.Cluster, "account=" + account}, "user")
}

func (c associations) listOp() runtimes.Op { return queryOp(c.control, c.listQuery()) }

// listed returns the users in the answer to listQuery.
func (c associations) listed(res runtimes.Result) ([]string, error) {
	rows, err := answer(c.site, c.listQuery(), res)
	return strings.Fields(strings.Join(slices.Concat(rows...), " ")), err
}

// inDatabase returns the users of the cluster in slurmdbd.
func (c associations) inDatabase(ctx context.Context) ([]string, error) {
	res, err := c.do(ctx, c.listOp())
	if err != nil {
		return nil, err
	}
	return c.listed(res[0])
}

// check fails if a user is not in a list of associations.
func (c associations) check(res runtimes.Result, users []schema.UnixUser) error {
	have, err := c.listed(res)
	if err != nil {
		return err
	}
	for _, u := range users {
		if !slices.Contains(have, u.Name) {
			return fmt.Errorf("host %s: user %s has no association with cluster %s: %s", c.host.Name(), u.Name, c.stack.Cluster, strings.TrimSpace(string(res.Stderr)))
		}
	}
	return nil
}

// add makes accounts on every host before it adds users to Slurm: slurmctld
// refuses a name that does not resolve then for as long as it runs.
func (c associations) add(ctx context.Context) error {
	users := c.rec.Unit.Instance.Users
	for _, u := range users {
		if err := checkUser(u); err != nil {
			return err
		}
	}
	if err := c.users.make(ctx, c.site, users); err != nil {
		return err
	}
	if err := c.onWorkers(ctx, func(ctx context.Context, wk site, m plan.Member) error {
		return c.users.make(ctx, wk, users)
	}); err != nil {
		return err
	}
	have, err := c.inDatabase(ctx)
	if err != nil {
		return err
	}
	var missing, closed []string
	for _, u := range users {
		if !slices.Contains(have, u.Name) {
			missing = append(missing, u.Name)
		}
		if c.rec.closing(userTarget(u.Name)) {
			closed = append(closed, u.Name)
		}
	}
	if len(closed) > 0 { // were being removed and are declared again
		reopen := c.sacctmgr("-i", "modify", "user", "where", "name="+strings.Join(closed, ","), "cluster="+c.stack.Cluster, "set", "maxsubmitjobs=-1")
		if err := c.doAll(ctx, reopen); err != nil { // its exit status is not zero if nothing changes
			return err
		}
		for _, name := range closed {
			c.rec.reopen(userTarget(name))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	// One call for all, as each takes a third of a second.
	add := c.sacctmgr("-i", "add", "user", strings.Join(missing, ","), "account="+account, "cluster="+c.stack.Cluster, "defaultaccount="+account)
	res, err := c.do(ctx, add, c.listOp())
	if err != nil {
		return err
	}
	if err := c.check(res[1], users); err != nil {
		return errors.Join(err, c.exitError(add, res[0]))
	}
	return nil
}

// remove removes users that are no longer declared: from Slurm once they have no
// jobs, and then their accounts.
func (c associations) remove(ctx context.Context) error {
	gone, err := c.inDatabase(ctx)
	if err != nil {
		return err
	}
	declared := names(c.rec.Unit.Instance.Users)
	gone = slices.DeleteFunc(gone, func(name string) bool { return slices.Contains(declared, name) })
	if len(gone) > 0 {
		if err := c.delete(ctx, gone); err != nil {
			return err
		}
	}
	return c.users.removeUndeclared(ctx)
}

func (c associations) delete(ctx context.Context, gone []string) error {
	for _, name := range gone {
		if err := c.close(ctx, userTarget(name)); err != nil {
			return err
		}
	}
	where := []string{"name=" + strings.Join(gone, ","), "cluster=" + c.stack.Cluster}
	if _, err := c.runChecked(ctx, c.sacctmgr("-i", "modify", "user", "where", where[0], where[1], "set", "maxsubmitjobs=0")); err != nil {
		return err
	}
	for _, name := range gone {
		if err := c.jobs.cancelPending(ctx, "--user="+name); err != nil {
			return err
		}
		if err := c.jobs.end(ctx, userTarget(name), "--user="+name); err != nil {
			return err
		}
		c.rec.reopen(userTarget(name))
	}
	remove := c.sacctmgr("-i", "delete", "user", where[0], where[1])
	began := time.Now()
	return c.env.poll(ctx, "remove "+strings.Join(gone, ",")+" from cluster "+c.stack.Cluster, func(ctx context.Context) (bool, string, error) {
		res, err := c.do(ctx, remove)
		if err != nil {
			return false, "", err
		}
		left, err := c.inDatabase(ctx)
		if err != nil || !slices.ContainsFunc(gone, func(n string) bool { return slices.Contains(left, n) }) {
			return true, "", err
		}
		seen := c.exitError(remove, res[0]).Error()
		if !strings.Contains(seen, "Job(s) active") {
			return false, seen, nil
		}
		// slurmdbd gets the end of a job late, and that of a lost job never. A lost job
		// whose id another job has is ended some minutes after that one.
		if err := c.endRunaways(ctx); err != nil || time.Since(began) < c.env.timeouts.Ready/2 {
			return false, seen, err
		}
		return false, seen, waiting("accounting has jobs as active that have ended: %s", seen)
	})
}
