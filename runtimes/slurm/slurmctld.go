package slurm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/reconciler/plan"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/profile"
)

// awaitSlurmctld waits until slurmctld answers. It exits 0 before it has read its configuration. Where a reconfigure
// restarts it, its pid file names the old process for a moment.
func (c controlDaemons) awaitSlurmctld(ctx context.Context) error {
	ping := c.cli("scontrol", "ping")
	var ended time.Time
	return c.env.poll(ctx, "slurmctld on "+c.host.Name(), func(ctx context.Context) (bool, string, error) {
		res, err := c.do(ctx, c.service(profile.Slurmctld, "state"), ping)
		if len(res) > 0 && !res[0].Service.Running {
			if ended.IsZero() {
				ended = time.Now()
			}
			seen := c.whyEnded(profile.Slurmctld, res[0])
			if c.rec.version().Reexecutes() && time.Since(ended) < 2*time.Second {
				return false, seen, nil
			}
			return false, "", errors.New(seen)
		}
		ended = time.Time{}
		if timedOut(err) { // a slow host
			return false, err.Error(), nil
		}
		if err != nil {
			return false, "", err
		}
		return pingUp(res[1]), strings.TrimSpace(string(res[1].Data) + string(res[1].Stderr)), nil
	})
}

// answers reports whether slurmctld answers.
func (c controlDaemons) answers(ctx context.Context) (bool, error) {
	res, err := c.do(ctx, c.cli("scontrol", "ping"))
	if timedOut(err) {
		return false, nil
	}
	return err == nil && pingUp(res[0]), err
}

// reconfigure makes slurmctld and the nodes read their files. slurmctld tries for about 10 s
// to reach a node that does not answer, and a slurmd 22.05 that starts in that time for
// the first time crashes. So it waits for the end of the request if a worker is to join.
func (c controlDaemons) reconfigure(ctx context.Context) error {
	call := c.cli("scontrol", "reconfigure")
	call.Run.TimeoutMS = int(c.env.timeouts.Ready.Milliseconds()) // with many nodes and jobs it takes longer than other calls
	if _, err := c.runChecked(ctx, call); err != nil {
		return err
	}
	joins := !c.rec.version().Reexecutes() &&
		slices.ContainsFunc(c.rec.workers(), func(m plan.Member) bool { return !c.rec.HasJoined(m.Node) })
	if joins {
		if err := c.env.poll(ctx, "reconfigure at "+c.host.Name(), func(ctx context.Context) (bool, string, error) {
			agents, err := ask(ctx, c.control, cli.Agents())
			return agents == 0, fmt.Sprintf("slurmctld sends %d requests to nodes", agents), err
		}); err != nil {
			return err
		}
	}
	return c.awaitSlurmctld(ctx)
}

// verifyConfig waits until slurmctld reports the configuration of its file.
func (c controlDaemons) verifyConfig(ctx context.Context) error {
	return c.env.poll(ctx, "configuration of slurmctld on "+c.host.Name(), func(ctx context.Context) (bool, string, error) {
		res, err := c.do(ctx, c.cli("scontrol", "show", "config"))
		if err != nil {
			return false, "", err
		}
		return hashMatches(res[0]), "slurmctld does not report the configuration of its file", nil
	})
}
