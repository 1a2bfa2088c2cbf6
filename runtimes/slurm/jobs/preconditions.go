package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"berth/runtimes"
	"berth/runtimes/slurm/boundary"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/profile"
	"berth/schema/queue"
)

// Preconditions checks what must hold before mode real-policy serves a project (requirement C4). at has
// the map.
func (q *Queue) Preconditions(ctx context.Context, at runtimes.QueueScope) ([]boundary.Evidence, error) {
	c, err := q.cluster(at)
	if err != nil {
		return nil, err
	}
	evidence, _, err := c.preconditions(ctx)
	return evidence, err
}

// preconditions also returns the partitions. The credentials are those of the cluster and of no user: munged
// makes one with the cluster's key.
func (c *cluster) preconditions(ctx context.Context) ([]boundary.Evidence, []cli.Partition, error) {
	ping, ask := cli.Ping(), cli.Partitions()
	munge := c.op("munge", profile.MungeArgs(c.stack.MungeSocket())...)
	munge.Run.Env = nil
	clusters := c.op("sacctmgr", "-i", "-n", "-P", "list", "cluster", "format=cluster")
	res, err := c.do(ctx, c.host, c.op(ping.Program, ping.Args...), munge, clusters)
	if err != nil {
		return nil, nil, err
	}
	isUp, err := ping.Decode(cli.Answer{Exit: res[0].Exit, Stdout: res[0].Data, Stderr: res[0].Stderr})
	isUp = isUp && err == nil
	isKnown := res[2].Exit == 0 && strings.Contains("\n"+string(res[2].Data), "\n"+c.stack.Cluster+"\n")

	var partitions []cli.Partition
	policy := errors.New("slurmctld does not answer")
	if isUp { // scontrol waits for a slurmctld that is down
		answer, err := c.do(ctx, c.host, c.op(ask.Program, ask.Args...))
		if err != nil {
			return nil, nil, err
		}
		if partitions, policy = ask.Decode(cli.Answer{Exit: answer[0].Exit, Stdout: answer[0].Data, Stderr: answer[0].Stderr}); policy == nil {
			policy = c.checkMap(partitions)
		}
	}
	evidence := []boundary.Evidence{
		proof(boundary.ControlPlaneReachable, isUp, "slurmctld answers a ping", message(res[0])),
		proof(boundary.CredentialsReadable, res[1].Exit == 0, "munged makes a credential with the key of cluster "+c.stack.Cluster, message(res[1])),
		proof(boundary.PolicyValid, policy == nil, "Slurm has every partition, account and QoS of the map", fmt.Sprint(policy)),
		proof(boundary.DependenciesHealthy, isKnown, "slurmdbd answers and has cluster "+c.stack.Cluster, message(res[2])),
		proof(boundary.RunbookPublished, c.Map != nil && c.Map.Spec.Runbook != "", "the map names a runbook", "spec.runbook of the map is missing"),
	}
	return evidence, partitions, nil
}

func proof(p boundary.Precondition, holds bool, seen, otherwise string) boundary.Evidence {
	if !holds {
		seen = otherwise
	}
	return boundary.Evidence{Precondition: p, Holds: holds, Seen: seen}
}

// checkMap checks the targets of each line of the map.
func (c *cluster) checkMap(partitions []cli.Partition) error {
	if c.Map == nil {
		return fmt.Errorf("%w: no map applies", queue.ErrConfiguration)
	}
	var all []error
	for _, q := range c.Map.Spec.Queues {
		all = append(all, confirm(partitions, queue.Mapping{Queue: q.Queue, Partition: q.Partition, Account: q.Account, QOS: q.QOS}))
	}
	return errors.Join(all...)
}
