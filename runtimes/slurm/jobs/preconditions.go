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
// the map. The credentials are those of the cluster and of no user: its munge key, which munged uses.
func (q *Queue) Preconditions(ctx context.Context, at runtimes.QueueScope) ([]boundary.Evidence, error) {
	c, err := q.cluster(at)
	if err != nil {
		return nil, err
	}
	ping, hosts := cli.Ping(), []string{"-i", "-n", "-P", "list", "cluster", "format=cluster"}
	munge := c.op("munge", profile.MungeArgs(c.stack.MungeSocket())...)
	munge.Run.Env = nil
	res, err := c.do(ctx, c.host, c.op(ping.Program, ping.Args...), munge, c.op("sacctmgr", hosts...))
	if err != nil {
		return nil, err
	}
	up, pingErr := ping.Decode(cli.Answer{Exit: res[0].Exit, Stdout: res[0].Data, Stderr: res[0].Stderr})
	known := res[2].Exit == 0 && strings.Contains("\n"+string(res[2].Data), "\n"+c.stack.Cluster+"\n")
	seen := func(holds bool, when string, otherwise runtimes.Result) string {
		if holds {
			return when
		}
		return "no: " + message(otherwise)
	}
	policy := c.checkMap(ctx)
	evidence := []boundary.Evidence{
		{Precondition: boundary.ControlPlaneReachable, Holds: up && pingErr == nil, Seen: seen(up && pingErr == nil, "slurmctld answers a ping", res[0])},
		{Precondition: boundary.CredentialsReadable, Holds: res[1].Exit == 0, Seen: seen(res[1].Exit == 0, "munged makes a credential with the key of cluster "+c.stack.Cluster, res[1])},
		{Precondition: boundary.PolicyValid, Holds: policy == nil, Seen: "Slurm has every partition, account and QoS of the map"},
		{Precondition: boundary.DependenciesHealthy, Holds: known, Seen: seen(known, "slurmdbd answers and has cluster "+c.stack.Cluster, res[2])},
		{Precondition: boundary.RunbookPublished, Holds: at.Map != nil && at.Map.Spec.Runbook != "", Seen: "spec.runbook of the map is missing"},
	}
	if policy != nil {
		evidence[2].Seen = policy.Error()
	}
	if evidence[4].Holds {
		evidence[4].Seen = at.Map.Spec.Runbook
	}
	return evidence, nil
}

// checkMap asks slurmctld for the targets of each line of the map.
func (c *cluster) checkMap(ctx context.Context) error {
	if c.Map == nil {
		return fmt.Errorf("%w: no map applies", queue.ErrConfiguration)
	}
	var all []error
	for _, q := range c.Map.Spec.Queues {
		all = append(all, c.confirm(ctx, queue.Mapping{Queue: q.Queue, Partition: q.Partition, Account: q.Account, QOS: q.QOS}))
	}
	return errors.Join(all...)
}
