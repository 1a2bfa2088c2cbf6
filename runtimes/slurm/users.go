package slurm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/schema"
)

// associationsInController returns the users of the cluster in slurmctld, which gets
// changes a moment after slurmdbd.
func (c *control) associationsInController(ctx context.Context) ([]string, error) {
	res, err := c.runChecked(ctx, c.cli("scontrol", "show", "assoc_mgr", "flags=assoc"))
	return parseAssociated(res.Data), err
}

// awaitUsers waits until slurmctld has exactly the declared users.
func (c *control) awaitUsers(ctx context.Context) error {
	return c.r.poll(ctx, "associations at "+c.host.Name(), func(ctx context.Context) (bool, string, error) {
		have, err := c.associationsInController(ctx)
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

// associationsInDatabase returns the users of the cluster in slurmdbd.
func (c *control) associationsInDatabase(ctx context.Context) ([]string, error) {
	res, err := c.runChecked(ctx, c.cli("sacctmgr", "-i", "-n", "-P", "list", "assoc", "cluster="+c.stack.Cluster, "account="+account, "format=user"))
	if err != nil {
		return nil, err
	}
	return strings.Fields(string(res.Data)), nil
}

// checkAssociations fails if a user is not in a list of associations.
func (c *control) checkAssociations(res runtimes.Result, users []schema.UnixUser) error {
	have := strings.Fields(string(res.Data))
	for _, u := range users {
		if !slices.Contains(have, u.Name) {
			return fmt.Errorf("host %s: user %s has no association with cluster %s: %s", c.host.Name(), u.Name, c.stack.Cluster, strings.TrimSpace(string(res.Stderr)))
		}
	}
	return nil
}

// addUsers makes accounts on every host before it adds users to Slurm: slurmctld
// refuses a name that does not resolve then for as long as it runs.
func (c *control) addUsers(ctx context.Context) error {
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
	have, err := c.associationsInDatabase(ctx)
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
		reopen := c.cli("sacctmgr", "-i", "modify", "user", "where", "name="+strings.Join(closed, ","), "cluster="+c.stack.Cluster, "set", "maxsubmitjobs=-1")
		if _, err := c.do(ctx, reopen); err != nil { // its exit status is not zero if nothing changes
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
	add := c.cli("sacctmgr", "-i", "add", "user", strings.Join(missing, ","), "account="+account, "cluster="+c.stack.Cluster, "defaultaccount="+account)
	list := c.cli("sacctmgr", "-i", "-n", "-P", "list", "assoc", "cluster="+c.stack.Cluster, "account="+account, "format=user")
	res, err := c.do(ctx, add, list)
	if err != nil {
		return err
	}
	if err := c.checkAssociations(res[1], users); err != nil {
		return errors.Join(err, c.exitError(add, res[0]))
	}
	return nil
}

// removeUsers removes users that are no longer declared: from Slurm once they have no
// jobs, and then their accounts.
func (c *control) removeUsers(ctx context.Context) error {
	gone, err := c.associationsInDatabase(ctx)
	if err != nil {
		return err
	}
	declared := names(c.rec.Unit.Instance.Users)
	gone = slices.DeleteFunc(gone, func(name string) bool { return slices.Contains(declared, name) })
	if len(gone) > 0 {
		if err := c.removeAssociations(ctx, gone); err != nil {
			return err
		}
	}
	return c.removeAccounts(ctx)
}

func (c *control) removeAssociations(ctx context.Context, gone []string) error {
	for _, name := range gone {
		if err := c.close(ctx, userTarget(name)); err != nil {
			return err
		}
	}
	where := []string{"name=" + strings.Join(gone, ","), "cluster=" + c.stack.Cluster}
	if _, err := c.runChecked(ctx, c.cli("sacctmgr", "-i", "modify", "user", "where", where[0], where[1], "set", "maxsubmitjobs=0")); err != nil {
		return err
	}
	for _, name := range gone {
		if err := c.cancelPending(ctx, "--user="+name); err != nil {
			return err
		}
		if err := c.endJobs(ctx, userTarget(name), "--user="+name); err != nil {
			return err
		}
		c.rec.reopen(userTarget(name))
	}
	remove := c.cli("sacctmgr", "-i", "delete", "user", where[0], where[1])
	return c.r.poll(ctx, "remove "+strings.Join(gone, ",")+" from cluster "+c.stack.Cluster, func(ctx context.Context) (bool, string, error) {
		res, err := c.do(ctx, remove)
		if err != nil {
			return false, "", err
		}
		left, err := c.associationsInDatabase(ctx)
		return !slices.ContainsFunc(gone, func(n string) bool { return slices.Contains(left, n) }), c.exitError(remove, res[0]).Error(), err
	})
}

// removeAccounts removes the accounts of users that are no longer declared from each
// host where no other instance needs them, and updates the records of workers.
func (c *control) removeAccounts(ctx context.Context) error {
	set, err := parseSettings(c.rec.Unit.Instance.Config)
	if err != nil {
		return err
	}
	now, gone := c.rec.Unit.Instance.Users, c.rec.undeclaredUsers()
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

// dropAccounts removes the accounts of users that no other instance on the host
// needs, and then does more. The lock keeps another instance from needing one.
func (c *control) dropAccounts(ctx context.Context, s site, users []schema.UnixUser, more ...runtimes.Op) error {
	defer c.r.lock("host " + s.host.Name())()
	unneededUsers, err := c.unneededUsers(ctx, s, users)
	if err != nil {
		return err
	}
	return s.doAll(ctx, append(userOps(unneededUsers, true), more...))
}

// makeUsers makes the accounts of users on a host, or checks that the directory has
// them with the declared uid.
func (c *control) makeUsers(ctx context.Context, s site, users []schema.UnixUser) error {
	set, err := parseSettings(c.rec.Unit.Instance.Config)
	if err != nil {
		return err
	}
	if len(users) == 0 {
		return nil
	}
	if set.Identity == identityManaged {
		return s.doAll(ctx, userOps(users, false))
	}
	for part := range slices.Chunk(users, batch/2) {
		if err := checkDirectory(ctx, s, part); err != nil {
			return err
		}
	}
	return nil
}

// checkDirectory checks that the host has users with their declared uid and none is
// an administrator: an author of the estate could act as that user.
func checkDirectory(ctx context.Context, s site, users []schema.UnixUser) error {
	ask := func(what, name string) runtimes.Op {
		return runtimes.Op{Run: &runtimes.Run{Program: "id", Args: []string{what, name}, TimeoutMS: 5_000, AllowExit: true}}
	}
	var ops []runtimes.Op
	for _, u := range users {
		ops = append(ops, ask("-u", u.Name), ask("-Gn", u.Name))
	}
	res, err := s.do(ctx, ops...)
	if err != nil {
		return err
	}
	for i, u := range users {
		id, groups := res[2*i], res[2*i+1]
		if got := strings.TrimSpace(string(id.Data)); got != fmt.Sprint(u.UID) {
			return fmt.Errorf("host %s: user %s: want uid %d from the directory, have %q: %s", s.host.Name(), u.Name, u.UID, got, strings.TrimSpace(string(id.Stderr)))
		}
		if groups.Exit != 0 {
			return fmt.Errorf("host %s: cannot read the groups of user %s: %s", s.host.Name(), u.Name, strings.TrimSpace(string(groups.Stderr)))
		}
		for _, g := range strings.Fields(string(groups.Data)) {
			if slices.Contains(runtimes.AdminGroups(), g) {
				return fmt.Errorf("host %s: user %s is in the group %s, which administers the host", s.host.Name(), u.Name, g)
			}
		}
	}
	return nil
}

// unneededUsers returns the users that no other instance on the host needs.
func (c *control) unneededUsers(ctx context.Context, s site, users []schema.UnixUser) ([]schema.UnixUser, error) {
	if len(users) == 0 {
		return nil, nil
	}
	here := &control{site: s, log: c.log, r: c.r, key: c.key, stack: c.stack}
	others, err := here.otherRecords(ctx)
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
