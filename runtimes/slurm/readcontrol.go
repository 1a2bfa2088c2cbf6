package slurm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"berth/runtimes"
	"berth/runtimes/slurm/accounting"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/cluster"
)

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

// readServices reads the states of the control stack's daemons again. A daemon that ended during
// the observation is stopped; it does not hang.
func (v *observation) readServices(caller context.Context) {
	ctx, cancel := context.WithTimeout(caller, v.ctl.env.timeouts.Call)
	defer cancel()
	res, err := v.ctl.do(ctx, controlDaemons{v.ctl}.serviceStates()...)
	if err != nil {
		return
	}
	for i, one := range res {
		v.services[i] = one.Service
	}
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
