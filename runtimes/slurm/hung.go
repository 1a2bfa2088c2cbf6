package slurm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"berth/runtimes"
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

// timedOut reports whether a program on a host ran longer than its limit.
func timedOut(err error) bool {
	op := new(runtimes.OpError)
	return errors.As(err, &op) && op.Code == "timeout"
}

// answers reports whether slurmctld answers.
func (c stackDaemons) answers(ctx context.Context) (bool, error) {
	res, err := c.do(ctx, c.cli("scontrol", "ping"))
	if timedOut(err) {
		return false, nil
	}
	return err == nil && pingUp(res[0]), err
}

// stopHung stops a daemon that runs and does not answer several probes in a row, each as
// long as Slurm's clients wait. It has SIGTERM and time to write its state. The time is
// recorded first, and a daemon that hangs again too soon is left to its
// administrator: restarts do not help then.
func (c stackDaemons) stopHung(ctx context.Context, service string, probe runtimes.Op) error {
	res, err := c.do(ctx, c.service(service, "state"))
	if err != nil || !res[0].Service.Running {
		return err
	}
	for range hungProbes {
		if silent, err := c.isSilent(ctx, probe); err != nil || !silent {
			return err
		}
	}
	now := c.env.now().UTC().Truncate(time.Second)
	if last, ok := c.disk.Hung[service]; ok && now.Before(last.Add(hungPause)) {
		return fmt.Errorf("host %s: %s runs and does not answer, and was restarted for that at %s; read its log in %s, or wait for the next restart after %s",
			c.host.Name(), service, last.Format(time.RFC3339), c.stack.Log(), last.Add(hungPause).Format(time.RFC3339))
	}
	hung := maps.Clone(c.disk.Hung)
	if hung == nil {
		hung = map[string]time.Time{}
	}
	hung[service] = now
	c.rec.Hung, c.disk.Hung = hung, hung
	if err := c.saveDisk(ctx); err != nil {
		return err
	}
	c.log.Warn("daemon that does not answer restarted", "host", c.host.Name(), "daemon", service)
	return c.doAll(ctx, c.service(service, "stop"))
}

// isSilent reports whether a probe gets no answer within the time that Slurm's clients
// wait. A refused connection and an error of the daemon come sooner.
func (c stackDaemons) isSilent(ctx context.Context, probe runtimes.Op) (bool, error) {
	limit := c.env.timeouts.Probe
	probe.Run.TimeoutMS = int(max(limit, c.env.timeouts.Call).Milliseconds())
	began := time.Now()
	res, err := c.do(ctx, probe)
	if timedOut(err) {
		return true, nil
	}
	return err == nil && res[0].Exit != 0 && time.Since(began) > limit*9/10, err
}
