package slurm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/cluster"
	"berth/schema"
)

// hostUsers makes the accounts of users on hosts.
type hostUsers struct{ *control }

// removeUndeclared removes the accounts of users that are no longer declared from each
// host where no other instance needs them, and updates the records of workers. The control host
// is last: the record keeps the users until all workers have removed them.
func (c hostUsers) removeUndeclared(ctx context.Context) error {
	set, err := cluster.Parse(c.rec.Unit.Effective.Config)
	if err != nil {
		return err
	}
	now, gone := c.rec.users(), c.rec.undeclaredUsers()
	if set.Identity != cluster.IdentityManaged {
		gone, now = nil, nil
	}
	left := c.tryWorkers(ctx, func(ctx context.Context, wk site, m plan.Member) error {
		res, err := wk.do(ctx, readOp(workerRecordPath))
		if err != nil {
			return err
		}
		rec, err := wk.readWorker(res[0])
		if err != nil {
			return err
		}
		// Also those who were removed while the worker did not answer.
		had := slices.DeleteFunc(rec.Users,
			func(u schema.UnixUser) bool { return rec.Cluster != c.stack.Cluster || slices.Contains(now, u) })
		return c.drop(ctx, wk, cluster.UnionOfUsers(gone, had), c.writeWorkerRecord(m, now))
	})
	var forget []runtimes.Op
	if left == nil && len(gone) > 0 {
		forget = append(forget, c.forgetUsers(gone)...)
	}
	if err := c.drop(ctx, c.site, gone, forget...); err != nil {
		return err
	}
	return left
}

// drop removes the accounts of users that no other instance on the host
// needs, and then does more. The lock keeps another instance from needing one.
func (c hostUsers) drop(ctx context.Context, s site, users []schema.UnixUser, more ...runtimes.Op) error {
	defer c.env.lock("host " + s.host.Name())()
	unneededUsers, err := c.unneeded(ctx, s, users)
	if err != nil {
		return err
	}
	return s.doAll(ctx, append(userOps(unneededUsers, true), more...)...)
}

// make makes the accounts of users on a host, or checks that the directory has
// them with the declared uid. If the host cannot have some of them, the error is a *lackingUsers.
func (c hostUsers) make(ctx context.Context, s site, users []schema.UnixUser) error {
	set, err := cluster.Parse(c.rec.Unit.Effective.Config)
	if err != nil {
		return err
	}
	if len(users) == 0 {
		return nil
	}
	lacks := &lackingUsers{}
	if set.Identity == cluster.IdentityManaged {
		return lacks.unlessNone(forUsers(ctx, s, users, func(part []schema.UnixUser) []runtimes.Op { return userOps(part, false) }, lacks))
	}
	const atOnce = 100 // two programs each, and a directory may be slow
	for part := range slices.Chunk(users, atOnce) {
		if err := checkDirectory(ctx, s, part, lacks); err != nil {
			return err
		}
	}
	return lacks.unlessNone(nil)
}

// lackingUsers is the error of users whom a host lacks.
type lackingUsers struct {
	names []string
	// taken are the users whose name or uid another account of the host has: their jobs would run
	// with that account.
	taken []string
	first error
}

// mostLacking is the number of failures after which the other users of a host are not tried.
const mostLacking = 10

func (l *lackingUsers) Error() string {
	if len(l.names) == 1 {
		return l.first.Error()
	}
	return fmt.Sprintf("%v; and %d more users have no account", l.first, len(l.names)-1)
}

func (l *lackingUsers) Unwrap() error { return l.first }

func (l *lackingUsers) add(name string, err error, taken bool) {
	l.names = append(l.names, name)
	if taken {
		l.taken = append(l.taken, name)
	}
	l.first = cmp.Or(l.first, err)
}

// unlessNone returns err or, if that is nil, the users that are lacking, if any.
func (l *lackingUsers) unlessNone(err error) error {
	if err == nil && len(l.names) > 0 {
		return l
	}
	return err
}

// lackingIn returns the users who are lacking by an error of make.
func lackingIn(err error) *lackingUsers {
	l := &lackingUsers{}
	errors.As(err, &l)
	return l
}

// makeOnWorker makes the accounts of users on a worker, and the directories in which their jobs run.
func (c hostUsers) makeOnWorker(ctx context.Context, wk site, users []schema.UnixUser) error {
	err := c.make(ctx, wk, users)
	lacks := lackingIn(err)
	if err != nil && len(lacks.names) == 0 || len(users) == 0 {
		return err
	}
	users = slices.DeleteFunc(slices.Clone(users), func(u schema.UnixUser) bool { return slices.Contains(lacks.names, u.Name) })
	if err := wk.doAll(ctx, makeOps(jobDirectories(c.stack))...); err != nil {
		return err
	}
	if users, err = c.withoutJobDir(ctx, wk, users); err != nil {
		return err
	}
	dirs := &lackingUsers{}
	err = forUsers(ctx, wk, users, c.jobDirOps, dirs)
	lacks.names, lacks.first = append(lacks.names, dirs.names...), cmp.Or(lacks.first, dirs.first) // none is taken
	return lacks.unlessNone(err)
}

// withoutJobDir returns the users whose directory on a worker is missing or not theirs. To make
// one, the helper reads the accounts of the host.
func (c hostUsers) withoutJobDir(ctx context.Context, wk site, users []schema.UnixUser) (out []schema.UnixUser, err error) {
	for part := range slices.Chunk(users, batch) {
		var paths []string
		for _, u := range part {
			paths = append(paths, c.stack.JobsOf(u.Name, u.UID))
		}
		res, err := wk.do(ctx, statOp(paths...))
		if err != nil {
			return nil, err
		}
		for i, st := range res[0].Stats {
			if !st.Exists || int(st.UID) != part[i].UID {
				out = append(out, part[i])
			}
		}
	}
	return out, nil
}

func (c hostUsers) jobDirOps(users []schema.UnixUser) []runtimes.Op {
	var ops []runtimes.Op
	for _, u := range users {
		ops = append(ops, runtimes.Op{UserDir: &runtimes.UserDir{In: c.stack.Jobs(), Name: u.Name, UID: u.UID}})
	}
	return ops
}

// forUsers does an operation for each user, and adds to lacks the users for whom it fails.
func forUsers(ctx context.Context, s site, users []schema.UnixUser, ops func([]schema.UnixUser) []runtimes.Op, lacks *lackingUsers) error {
	for len(users) > 0 {
		part := users[:min(len(users), batch)]
		res, err := s.do(ctx, ops(part)...)
		if err == nil {
			users = users[len(part):]
			continue
		}
		if op := new(runtimes.OpError); !errors.As(err, &op) {
			return err
		}
		lacks.add(users[len(res)].Name, err, isRefused(err))
		if users = users[len(res)+1:]; len(lacks.names) >= mostLacking {
			for _, u := range users {
				lacks.add(u.Name, err, false)
			}
			return nil
		}
	}
	return nil
}

// checkDirectory checks that the host has users with their declared uid and none is
// an administrator: an author of the estate could act as that user. It adds all others to lacks.
func checkDirectory(ctx context.Context, s site, users []schema.UnixUser, lacks *lackingUsers) error {
	ask := func(what, name string) runtimes.Op {
		return runtimes.Op{Run: &runtimes.Run{Program: "id", Args: []string{what, name}, TimeoutMS: int(localTimeout.Milliseconds()),
			AllowExit: true}}
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
		if err := userFault(s, u, res[2*i], res[2*i+1]); err != nil {
			lacks.add(u.Name, err, len(res[2*i].Data) > 0)
		}
	}
	return nil
}

// userFault returns why a host cannot use a user of the directory by the output of id.
func userFault(s site, u schema.UnixUser, id, groups runtimes.Result) error {
	if got := strings.TrimSpace(string(id.Data)); got != fmt.Sprint(u.UID) {
		return fmt.Errorf("host %s: user %s: want uid %d from the directory, have %q: %s", s.host.Name(), u.Name, u.UID, got,
			strings.TrimSpace(string(id.Stderr)))
	}
	if groups.Exit != 0 {
		return fmt.Errorf("host %s: cannot read the groups of user %s: %s", s.host.Name(), u.Name, strings.TrimSpace(string(groups.Stderr)))
	}
	for _, g := range strings.Fields(string(groups.Data)) {
		if slices.Contains(runtimes.AdminGroups(), g) {
			return fmt.Errorf("host %s: user %s is in the group %s, which administers the host", s.host.Name(), u.Name, g)
		}
	}
	return nil
}

// unneeded returns the users that no other instance on the host needs.
func (c hostUsers) unneeded(ctx context.Context, s site, users []schema.UnixUser) ([]schema.UnixUser, error) {
	if len(users) == 0 {
		return nil, nil
	}
	here := &control{site: s, log: c.log, env: c.env, key: c.key, stack: c.stack}
	others, err := here.file().others(ctx)
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
	rec, err := s.readWorker(res[0])
	if err != nil {
		return nil, err
	}
	if rec.Cluster != c.stack.Cluster {
		needed = append(needed, rec.Users...)
	}
	return slices.DeleteFunc(slices.Clone(users), func(u schema.UnixUser) bool { return slices.Contains(needed, u) }), nil
}
