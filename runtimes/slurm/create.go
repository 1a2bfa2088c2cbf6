package slurm

import (
	"context"
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

// create makes the control stack, from nothing or from where it was left. The
// order is database, slurmdbd, accounts, slurmctld: accounts loaded while
// slurmctld starts are a race that refuses every job, and slurmctld without
// slurmdbd makes up an identity that slurmdbd later refuses.
func (c *control) create(ctx context.Context, after *plan.Unit) error {
	missing := make(chan map[string]error, 1)
	go func() { missing <- c.missingDevices(ctx, after.Members) }()
	claimed, err := c.claim(ctx, after)
	lacking := <-missing
	if err != nil {
		return err
	}
	if !claimed {
		return c.bringUp(ctx)
	}
	for _, m := range after.Members {
		if lacking[m.Name] == nil {
			c.rec.setGres(m)
		}
	}
	if err := c.layDown(ctx); err != nil {
		return err
	}
	if err := c.database(ctx); err != nil {
		return err
	}
	assocs := c.cli("sacctmgr", "-i", "-n", "-P", "list", "assoc", "cluster="+c.stack.Cluster, "format=user")
	load := c.cli("sacctmgr", "-i", "load", "file="+c.stack.Accounts())
	res, err := c.do(ctx, c.service(profile.Slurmdbd, "start"), c.waitSlurmdbd(), load, c.service(profile.Slurmctld, "start"), assocs)
	if err != nil {
		return err
	}
	if err := c.sameUsers(res[4], after.Instance.Users); err != nil {
		return fmt.Errorf("accounts were loaded but are not there: %w; sacctmgr load said: %s", err, strings.TrimSpace(string(res[2].Data)+string(res[2].Stderr)))
	}
	if err := c.awaitController(ctx); err != nil {
		return err
	}
	c.rec.Complete = true
	return c.save(ctx)
}

// claim writes the record of a unit that is not complete yet: with ports of
// its own, or those it claimed before. It says no if the unit is complete.
func (c *control) claim(ctx context.Context, after *plan.Unit) (bool, error) {
	defer c.r.lock("host " + c.host.Name())()
	res, err := c.do(ctx, runtimes.Op{Info: &runtimes.Info{}}, readOp(c.stack.Record()))
	if err != nil {
		return false, err
	}
	switch err := c.take(res[1]); {
	case err == nil && c.rec.Complete && !c.rec.Deleting:
		return false, nil
	case errors.Is(err, errNoRecord):
		others, err := c.others(ctx)
		if err != nil {
			return false, err
		}
		p, err := choosePorts(c.stack.Cluster, others)
		if err != nil {
			return false, fmt.Errorf("host %s: %w", c.host.Name(), err)
		}
		c.rec = record{Format: recordFormat, Cluster: c.stack.Cluster, Ports: p}
	case err != nil:
		return false, err
	}
	// Before anything is written, and again where an attempt was cut off.
	if _, err := c.do(ctx, c.preflight()); err != nil {
		return false, err
	}
	c.rec.Unit, c.rec.Hostname, c.rec.Stopped = *after, shortName(res[0].Info.Hostname), false
	ops := []runtimes.Op{dirOp(profile.InstanceDir, 0o755, "")}
	if c.rec.Deleting {
		// It was being deleted: its database may be gone, and slurmctld would
		// not go with its old state and a new one.
		ops = append(ops, c.service(profile.Slurmctld, "stop"), removeTreeOp(c.stack.State()))
		c.rec.Deleting, c.rec.Complete = false, false
	}
	_, err = c.do(ctx, append(ops, c.writeRecord(&c.rec))...)
	return true, err
}

// preflight looks for what is in the way of a control stack on its host.
func (c *control) preflight() runtimes.Op {
	s := c.stack
	p := &runtimes.Preflight{Paths: []string{s.Record(), s.Etc(), s.MungeKey(), s.Lib(), s.Log(), profile.DatabaseDir}}
	p.Paths = append(p.Paths, s.ConfigFiles()...)
	for _, name := range controlServices() {
		p.Services = append(p.Services, *c.service(name, "").Service)
	}
	return runtimes.Op{Preflight: p}
}

// workerPreflight is preflight for a worker's host.
func (c *control) workerPreflight() runtimes.Op {
	p := &runtimes.Preflight{Paths: []string{workerRecordPath, profile.WorkerMungeKey, profile.WorkerSpoolDir}}
	for _, name := range []string{profile.MungedWorker, profile.Slurmd} {
		p.Services = append(p.Services, *c.service(name, "").Service)
	}
	return runtimes.Op{Preflight: p}
}

// sharedDirs are directories that stand on a host for all units and for the
// distribution's packages, those below others first.
func sharedDirs() []string {
	return []string{profile.EtcDir, profile.MungeEtc, profile.MungeLib, profile.MungeLog, profile.StateDir, profile.LogDir}
}

// removeSharedDirs removes those that Berth made and that are empty.
func removeSharedDirs() []runtimes.Op {
	var ops []runtimes.Op
	for _, dir := range sharedDirs() {
		ops = append(ops, removeEmptyOp(dir))
	}
	return ops
}

// shortName is a host's name as Slurm compares it.
func shortName(hostname string) string {
	short, _, _ := strings.Cut(hostname, ".")
	return short
}

// layDown makes directories, key, accounts and files, and starts munged. A
// slurmctld of an earlier attempt is stopped: it serves nobody yet, and what
// follows must not meet it starting.
func (c *control) layDown(ctx context.Context) error {
	rendered, err := files(&c.rec)
	if err != nil {
		return err
	}
	if err := c.makeUsers(ctx, c.site, c.rec.Unit.Instance.Users); err != nil { // whom claim has named
		return err
	}
	s := c.stack
	ops := []runtimes.Op{
		c.service(profile.Slurmctld, "stop"),
		c.writeRecord(&c.rec),
		dirOp(profile.EtcDir, 0o755, ""),
		dirOp(profile.MungeEtc, 0o700, profile.MungeUser),
		dirOp(profile.MungeLib, 0o711, profile.MungeUser),
		dirOp(profile.MungeLog, 0o700, profile.MungeUser),
		dirOp(profile.StateDir, 0o755, profile.SlurmUser),
		dirOp(profile.LogDir, 0o755, profile.SlurmUser),
		dirOp(s.Etc(), 0o755, ""),
		ownDirOp(s.Lib(), 0o755, profile.SlurmUser),
		ownDirOp(s.State(), 0o700, profile.SlurmUser),
		ownDirOp(s.Log(), 0o755, profile.SlurmUser),
		{Secret: &runtimes.MakeSecret{Path: s.MungeKey(), Bytes: 128, Mode: 0o400, Owner: profile.MungeUser, Group: profile.MungeUser}},
	}
	ops = append(ops, writeOps(rendered)...)
	ops = append(ops, c.service(profile.Munged, "start"))
	_, err = c.do(ctx, ops...)
	return err
}

func writeOps(rendered map[string]file) []runtimes.Op {
	var ops []runtimes.Op
	for _, path := range slices.Sorted(maps.Keys(rendered)) {
		ops = append(ops, writeOp(path, rendered[path]))
	}
	return ops
}

// database makes the server if the host has none, and the stack's own database
// in it. Stacks of one host take turns.
func (c *control) database(ctx context.Context) error {
	defer c.r.lock("host " + c.host.Name())()
	res, err := c.do(ctx, runtimes.Op{Stat: &runtimes.Stat{Paths: []string{profile.DatabaseInstalled}}}, c.service(profile.MariaDB, "state"))
	if err != nil {
		return err
	}
	if !res[0].Stats[0].Exists {
		if err := c.mayInstall(ctx, res[1].Service.Running); err != nil {
			return err
		}
		_, err := c.do(ctx,
			removeTreeOp(profile.DatabaseData), // of an attempt that was cut off
			ownDirOp(profile.DatabaseDir, 0o755, profile.DatabaseUser),
			ownDirOp(profile.DatabaseData, 0o700, profile.DatabaseUser),
			runtimes.Op{Run: &runtimes.Run{Program: "mariadb-install-db", Args: profile.InstallDBArgs(), TimeoutMS: 60_000}},
			writeOp(profile.DatabaseInstalled, file{[]byte("made by Berth\n"), 0o644, ""}),
		)
		if err != nil {
			return err
		}
	}
	if _, err := c.do(ctx, c.service(profile.MariaDB, "start")); err != nil {
		return err
	}
	return c.sql(ctx, c.stack.CreateDatabaseSQL())
}

// mayInstall makes sure that a database without its mark was never finished: a
// mark that was lost must not cost every instance of the host its accounting.
func (c *control) mayInstall(ctx context.Context, running bool) error {
	others, err := c.others(ctx)
	if err != nil {
		return err
	}
	const lost = "host %s: %s is gone, and %s: if the database in %s is whole, make that file again; nothing is made over it"
	for _, o := range others {
		if o.Complete {
			return fmt.Errorf(lost, c.host.Name(), profile.DatabaseInstalled, o.Unit.Instance.Key.String()+" has its accounting there", profile.DatabaseData)
		}
	}
	if running {
		return fmt.Errorf(lost, c.host.Name(), profile.DatabaseInstalled, "its server runs", profile.DatabaseData)
	}
	return nil
}

// sql runs statements as soon as the server takes them.
func (c *control) sql(ctx context.Context, statements string) error {
	op := runtimes.Op{Run: &runtimes.Run{Program: "mariadb", Args: profile.SQLArgs(), Stdin: []byte(statements), TimeoutMS: 10_000, AllowExit: true}}
	return c.r.poll(ctx, "database on "+c.host.Name(), func(ctx context.Context) (bool, string, error) {
		res, err := c.do(ctx, op)
		if err != nil {
			return false, "", err
		}
		if res[0].Exit == 0 {
			return true, "", nil
		}
		refusal := c.refused(op, res[0])
		// 2002 and 2013: no server at the socket, yet.
		if said := string(res[0].Stderr); strings.Contains(said, "ERROR 2002") || strings.Contains(said, "ERROR 2013") {
			return false, refusal.Error(), nil
		}
		return false, "", refusal
	})
}

func (c *control) waitSlurmdbd() runtimes.Op {
	return runtimes.Op{WaitTCP: &runtimes.WaitTCP{
		Address: fmt.Sprintf("127.0.0.1:%d", c.rec.Ports.Slurmdbd), TimeoutMS: int(c.r.timeouts.Ready.Milliseconds()),
	}}
}

// awaitController waits until slurmctld answers, and then proves that it runs
// what its file says. slurmctld exits 0 before it has read its configuration.
func (c *control) awaitController(ctx context.Context) error {
	ping := c.cli("scontrol", "ping")
	err := c.r.poll(ctx, "slurmctld on "+c.host.Name(), func(ctx context.Context) (bool, string, error) {
		res, err := c.do(ctx, ping, c.service(profile.Slurmctld, "state"))
		if err != nil {
			return false, "", err
		}
		if pingUp(res[0].Data) {
			return true, "", nil
		}
		seen := strings.TrimSpace(string(res[0].Data) + string(res[0].Stderr))
		if st := res[1].Service; !st.Running {
			return false, "", fmt.Errorf("it ended: %s", st.Detail)
		}
		return false, seen, nil
	})
	if err != nil {
		return err
	}
	return c.proveConfig(ctx)
}

// proveConfig reads back that what runs is what the file says.
func (c *control) proveConfig(ctx context.Context) error {
	return c.r.poll(ctx, "configuration of slurmctld on "+c.host.Name(), func(ctx context.Context) (bool, string, error) {
		res, err := c.do(ctx, c.cli("scontrol", "show", "config"))
		if err != nil {
			return false, "", err
		}
		return hashMatches(res[0]), "it does not say that it runs the configuration of its file", nil
	})
}

// bringUp starts whatever of a complete control stack does not run, in the
// order that is safe, and reads back that it serves.
func (c *control) bringUp(ctx context.Context) error {
	res, err := c.do(ctx, c.service(profile.Munged, "start"), c.service(profile.MariaDB, "start"))
	if err != nil {
		return err
	}
	if res[1].Changed {
		if err := c.sql(ctx, profile.PingSQL); err != nil {
			return err
		}
	}
	res, err = c.do(ctx, c.service(profile.Slurmctld, "state"))
	if err != nil {
		return err
	}
	if !res[0].Service.Running {
		// A start does not push the configuration to nodes that run already.
		if err := c.owe(ctx, owed{Reconfigure: true, Settle: true}); err != nil {
			return err
		}
	}
	res, err = c.do(ctx, c.service(profile.Slurmdbd, "start"), c.waitSlurmdbd(), c.service(profile.Slurmctld, "start"))
	if err != nil {
		return err
	}
	if err := c.awaitController(ctx); err != nil {
		return err
	}
	// What was started has read its files anew; what ran already may not have.
	done := owed{Restart: res[2].Changed, Database: res[0].Changed}
	if c.disk.Owed.Settle {
		if _, err := c.must(ctx, c.cli("scontrol", "reconfigure")); err != nil {
			return err
		}
		if err := c.awaitController(ctx); err != nil {
			return err
		}
		if err := c.settle(ctx); err != nil {
			return err
		}
		done.Reconfigure, done.Settle = true, true
	}
	return c.paid(ctx, done)
}

// settle sets right what slurmctld forgot if it was killed: it loses what it
// acknowledged in the last seconds, so that nodes come back that were deleted,
// and drains that were taken back, and nodes that had just joined are unknown.
func (c *control) settle(ctx context.Context) error {
	nodes, err := c.nodes(ctx)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		member := slices.ContainsFunc(c.rec.Joined, func(m plan.Member) bool { return m.Node == n.Name })
		switch {
		case !member:
			if err := c.drain(ctx, drainLeave+"gone", n.Name); err != nil {
				return err
			}
			if err := c.deleteNode(ctx, n.Name); err != nil {
				return err
			}
		case n.flag("DRAIN") && strings.HasPrefix(n.Reason, drainLeave) && !c.rec.closing(nodeThing(n.Name)),
			n.flag("DRAIN") && strings.HasPrefix(n.Reason, drainStop) && !c.rec.Stopped && !c.rec.closing(c.clusterThing()):
			if err := c.undrain(ctx, n.Name); err != nil {
				return err
			}
		}
	}
	control, _ := c.rec.Unit.Control()
	return c.onWorkers(ctx, func(ctx context.Context, wk site, m plan.Member) error {
		if _, known := findNode(nodes, m.Node); known {
			return nil
		}
		res, err := wk.do(ctx, c.service(profile.Slurmd, "state"))
		if err != nil || !res[0].Service.Running {
			return err // what stands still is started by itself
		}
		if _, err := wk.do(ctx, c.slurmd(m, control, "restart")); err != nil {
			return err
		}
		return c.awaitNode(ctx, wk, m)
	})
}

// missingDevices says of each member with GPUs why its device files are not all
// there, if so. A line of gres.conf that names a file that is missing ends the
// slurmd that reads it.
func (c *control) missingDevices(ctx context.Context, members []plan.Member) map[string]error {
	var mu sync.Mutex
	var wg sync.WaitGroup
	out := map[string]error{}
	for _, m := range members {
		if len(m.GPUs) == 0 {
			continue
		}
		wg.Go(func() {
			if err := c.checkDevices(ctx, m); err != nil {
				mu.Lock()
				out[m.Name] = err
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return out
}

func (c *control) checkDevices(ctx context.Context, m plan.Member) error {
	var paths []string
	for _, g := range m.GPUs {
		fs, err := deviceFiles(g.Devices)
		if err != nil {
			return err
		}
		if len(fs) != g.Count {
			return fmt.Errorf("node %s: %s names %d files for %d GPUs", m.Node, g.Devices, len(fs), g.Count)
		}
		paths = append(paths, fs...)
	}
	if len(paths) == 0 {
		return nil
	}
	res, err := c.worker(m).do(ctx, runtimes.Op{Stat: &runtimes.Stat{Paths: paths}})
	if err != nil {
		return err
	}
	for _, st := range res[0].Stats {
		if st.Type != "char" {
			return fmt.Errorf("host %s: %s is no device file: the node declares GPUs that it has not got", m.Node, st.Path)
		}
	}
	return nil
}

// makeUsers makes sure that people's accounts are on a host: makes them, or
// looks whether the directory serves them, with the uid declared.
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
		if err := lookUp(ctx, s, part); err != nil {
			return err
		}
	}
	return nil
}

// lookUp checks that a host knows people by the uid declared, and none of them
// as an administrator: whoever may name a person could act as one.
func lookUp(ctx context.Context, s site, users []schema.UnixUser) error {
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
			return fmt.Errorf("host %s: the groups of user %s cannot be told: %s", s.host.Name(), u.Name, strings.TrimSpace(string(groups.Stderr)))
		}
		for _, g := range strings.Fields(string(groups.Data)) {
			if slices.Contains(runtimes.AdminGroups(), g) {
				return fmt.Errorf("host %s: user %s is in the group %s, which administers the host", s.host.Name(), u.Name, g)
			}
		}
	}
	return nil
}
