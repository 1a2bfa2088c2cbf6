package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"berth/runtimes"
	"berth/runtimes/slurm/boundary"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/profile"
	"berth/schema/queue"
)

// Readiness implements runtimes.Queue. Its evidence is that of Submit.
func (q *Queue) Readiness(ctx context.Context, at runtimes.QueueScope) (queue.Readiness, error) {
	mode := boundary.ModeOf(at.Map)
	r := queue.Readiness{Adapter: string(mode), ContractVersion: boundary.ContractVersion}
	c, err := q.cluster(at)
	if err == nil {
		r.Preconditions, _, err = c.preconditions(ctx)
	}
	switch {
	case errors.Is(err, queue.ErrUnavailable):
		for i, p := range boundary.Preconditions() {
			seen := "not checked"
			if i == 0 {
				seen = "the host of the control plane does not answer"
			}
			r.Preconditions = append(r.Preconditions, boundary.Proof(p, false, "", seen))
		}
	case err != nil:
		return queue.Readiness{}, err
	}
	r.Serves = err == nil && (mode != boundary.RealPolicy || boundary.Ready(r.Preconditions) == nil)
	return r, nil
}

// preconditions checks what must hold before mode real-policy serves a project (requirement C4), and also returns
// the partitions. The credentials are those of the cluster and of no user: munged
// makes one with the cluster's key.
func (c *cluster) preconditions(ctx context.Context) ([]queue.Evidence, []cli.Partition, error) {
	ping, ask := cli.Ping(), cli.Partitions()
	munge := c.op("munge", profile.MungeArgs(c.stack.Munge().Socket())...)
	munge.Run.Env = nil
	clusters := c.op("sacctmgr", "-i", "-n", "-P", "list", "cluster", "format=cluster")
	res, err := c.do(ctx, c.host, c.op(ping.Program, ping.Args...), munge, clusters)
	if err != nil {
		return nil, nil, err
	}
	isUp, err := ping.Decode(cli.Answer{Exit: res[0].Exit, Stdout: res[0].Data, Stderr: res[0].Stderr})
	isUp = isUp && err == nil
	isKnown := res[2].Exit == 0 && strings.Contains("\n"+string(res[2].Data), "\n"+c.stack.Cluster+"\n")

	down := message(res[0])
	var partitions []cli.Partition
	policy := errors.New("slurmctld does not answer")
	if isUp { // scontrol waits for a slurmctld that is down
		answer, err := c.do(ctx, c.host, c.op(ask.Program, ask.Args...))
		if err != nil {
			return nil, nil, err
		}
		if partitions, err = ask.Decode(cli.Answer{Exit: answer[0].Exit, Stdout: answer[0].Data, Stderr: answer[0].Stderr}); err != nil {
			isUp, down = false, err.Error()
		} else {
			policy = c.checkMap(partitions)
		}
	}
	runbook, why := c.runbook()
	evidence := []queue.Evidence{
		boundary.Proof(boundary.ControlPlaneReachable, isUp, "slurmctld answers a ping", down),
		boundary.Proof(boundary.CredentialsReadable, res[1].Exit == 0, "munged makes a credential with the key of cluster "+c.stack.Cluster,
			message(res[1])),
		boundary.Proof(boundary.PolicyValid, policy == nil, "Slurm has every partition, account and QoS of the map", fmt.Sprint(policy)),
		boundary.Proof(boundary.DependenciesHealthy, isKnown, "slurmdbd answers and has cluster "+c.stack.Cluster, message(res[2])),
		boundary.Proof(boundary.RunbookPublished, why == "", runbook, why),
	}
	for i := range evidence {
		evidence[i].Seen = c.withoutHosts(evidence[i].Seen)
	}
	return evidence, partitions, nil
}

// runbook returns where people can read the runbook of the map, or why they cannot.
func (c *cluster) runbook() (seen, why string) {
	switch {
	case c.Map == nil || c.Map.Spec.Runbook == "":
		return "", "spec.runbook of the map is missing"
	case !c.HasRunbook:
		return "", c.Map.Spec.Runbook + " is neither a README.md in force below platform/ nor an https link"
	case strings.HasPrefix(c.Map.Spec.Runbook, "https://"):
		return c.Map.Spec.Runbook + " is linked; Berth does not open links", ""
	}
	return c.Map.Spec.Runbook + " is in force", ""
}

var word = regexp.MustCompile(`[A-Za-z0-9][-A-Za-z0-9.]*[A-Za-z0-9]|[A-Za-z0-9]`)

// withoutHosts replaces the names and addresses of hosts in a text of Slurm's tools by the names of members: hosts
// are the platform's, and a project reads the text.
func (c *cluster) withoutHosts(text string) string {
	members := map[string]string{}
	for _, m := range c.Unit.Members {
		members[m.Node], members[m.Address] = m.Name, m.Name
		if strings.Contains(m.Address, ":") { // IPv6
			text = strings.ReplaceAll(text, m.Address, m.Name)
		}
	}
	return word.ReplaceAllStringFunc(text, func(w string) string { return cmp.Or(members[w], w) })
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
