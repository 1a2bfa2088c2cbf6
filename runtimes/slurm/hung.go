package slurm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"berth/runtimes"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
)

const (
	// hungProbes is the number of calls in a row that a hung daemon does not answer. A
	// busy one answers one of them.
	hungProbes = 3
	// hungPause is the shortest time between two restarts of a hung daemon.
	hungPause = 10 * time.Minute
)

// askSlurmdbd returns a call that slurmdbd answers without much work.
func askSlurmdbd(c *control) runtimes.Op {
	return c.sacctmgr("-i", "-n", "-P", "list", "cluster", "format=cluster")
}

// askMunged returns a call that munged answers. It keeps no credential.
func askMunged(socket string) runtimes.Op {
	return runtimes.Op{Run: &runtimes.Run{Program: "munge", Args: profile.MungeArgs(socket), AllowExit: true}}
}

// askMariaDB returns a call that the database server answers.
func askMariaDB() runtimes.Op { return sqlOp(profile.PingSQL) }

// sqlOp runs statements as the administrator of the database.
func sqlOp(statements string) runtimes.Op {
	return runtimes.Op{Run: &runtimes.Run{Program: "mariadb", Args: profile.SQLArgs(), Stdin: []byte(statements), AllowExit: true}}
}

// timedOut reports whether a program on a host ran longer than its limit.
func timedOut(err error) bool {
	op := new(runtimes.OpError)
	return errors.As(err, &op) && op.Code == runtimes.CodeTimeout
}

// isRefused reports whether the helper on a host does not allow an operation.
func isRefused(err error) bool {
	op := new(runtimes.OpError)
	return errors.As(err, &op) && op.Code == runtimes.CodeRefused
}

// hungDaemons stops daemons that run and do not answer.
type hungDaemons struct{ *control }

// stop stops a daemon that runs and does not answer several probes in a row, each as
// long as Slurm's clients wait. It has SIGTERM and time to write its state. The caller holds
// the lock of the cluster. runs: the daemon runs, and answers.
func (c hungDaemons) stop(ctx context.Context, d daemon) (runs bool, err error) {
	if runs, err = d.runs(ctx, d.op("state")); err != nil || !runs {
		return false, err
	}
	for range hungProbes {
		silent, err := c.isSilent(ctx, d)
		if err != nil {
			return true, err
		}
		if !silent {
			return d.runs(ctx, d.op("state")) // a refusal may be that of one that has just ended
		}
	}
	if err := c.recordRestart(ctx, d.site, d.name, d.log); err != nil {
		return true, err
	}
	return false, d.doAll(ctx, d.op("stop"))
}

// recordRestart records the restart of a daemon that hangs, before it. A daemon that hangs
// again too soon is left to its administrator: restarts do not help then, which is the error.
func (c hungDaemons) recordRestart(ctx context.Context, s site, name, log string) error {
	now := c.env.now().UTC().Truncate(time.Second)
	if last, ok := c.disk.Hung[name]; ok && now.Before(last.Add(hungPause)) {
		return fmt.Errorf("host %s: %s runs and does not answer, and was restarted for that at %s; read its log in %s, or wait for the "+
			"next restart after %s",
			s.host.Name(), name, last.Format(time.RFC3339), log, last.Add(hungPause).Format(time.RFC3339))
	}
	hung := maps.Clone(c.disk.Hung)
	if hung == nil {
		hung = map[string]time.Time{}
	}
	hung[name] = now
	c.rec.Hung, c.disk.Hung = hung, hung
	if err := c.saveDisk(ctx); err != nil {
		return err
	}
	c.log.Warn("daemon that does not answer restarted", "host", s.host.Name(), "daemon", name)
	return nil
}

// messageTimeout is how long the tools of a cluster wait for an answer by its config; 0: by
// Slurm's default.
func (c hungDaemons) messageTimeout() time.Duration {
	set, err := cluster.Parse(c.rec.Unit.Effective.Config)
	if err != nil {
		return 0
	}
	seconds, _ := strconv.Atoi(string(set.Options["MessageTimeout"])) // a valid config has a number
	return time.Duration(seconds) * time.Second
}

// isSilent reports whether a probe gets no answer within the time that Slurm's clients
// wait. A refused connection and an error of the daemon come sooner.
func (c hungDaemons) isSilent(ctx context.Context, d daemon) (bool, error) {
	probe := d.probe
	limit := max(c.env.timeouts.Probe, c.messageTimeout())
	probe.Run.TimeoutMS = int(max(limit, c.env.timeouts.Call).Milliseconds())
	began := time.Now()
	res, err := d.do(ctx, probe)
	if timedOut(err) {
		return true, nil
	}
	return err == nil && res[0].Exit != 0 && time.Since(began) > limit*9/10, err
}

// recoveryTime is the time after its start in which slurmctld takes recovered jobs for
// running, although the node has registered without them: BatchStartTimeout and
// MessageTimeout, 10 s each (slurm.conf(5)), and as much again for a slow host.
const recoveryTime = 40 * time.Second

// hasLostJobs reports whether slurmctld has running jobs on a node from before its boot.
// slurmctld queues them again when the node registers, but not in the first seconds after its
// own start: after a power loss of both they would keep their resources until the next
// registration, some minutes later. age is how long slurmctld has run.
func hasLostJobs(n node, earliest map[string]int64, age time.Duration) bool {
	start, ok := earliest[n.Name]
	return ok && start < n.Booted && age > recoveryTime
}
