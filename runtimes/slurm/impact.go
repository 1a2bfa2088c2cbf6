package slurm

import (
	"fmt"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// Rules are the planning rules of this runtime. They need no host.
type Rules struct{}

// Impact implements plan.Rules.
func (Rules) Impact(verb plan.Verb, member string, before, after *plan.Unit) plan.Impact {
	switch verb {
	case plan.Create:
		return plan.Impact{Note: confinementNote(after)}
	case plan.Configure:
		return configureImpact(before, after)
	case plan.Leave:
		node := ""
		if m, ok := before.Member(member); ok {
			node = m.Node
		}
		return ends(plan.Impact{Drains: nonEmpty(node)}, before, "jobs on the node")
	case plan.Start:
		if m, ok := after.Member(member); ok && m.ControlPlane {
			return plan.Impact{Restarts: []string{"control plane"}, Note: "running jobs go on"}
		}
		return plan.Impact{Restarts: []string{member}, Note: "running jobs go on"}
	case plan.Stop:
		return ends(plan.Impact{Drains: workerNodes(before), Note: "queued jobs are kept"}, before, "running jobs")
	case plan.Delete:
		i := ends(plan.Impact{Drains: workerNodes(before)}, before, "running jobs")
		i.Note = join(i.Note, "queued jobs are cancelled; the accounting records are removed")
		return i
	}
	return plan.Impact{}
}

// confinementNote says that a unit does not confine its jobs.
func confinementNote(u *plan.Unit) string {
	if set, err := parseSettings(u.Instance.Config); err != nil || set.Confinement != confinementNone {
		return ""
	}
	return "jobs are not confined to their CPUs, memory and GPUs (confinement: none)"
}

func configureImpact(before, after *plan.Unit) plan.Impact {
	if before == nil || after == nil {
		return plan.Impact{}
	}
	var i plan.Impact
	old, now, err := renderBoth(before, after)
	if err != nil {
		i.Note = "cannot be rendered: " + err.Error() // the action fails too, before any effect
		return i
	}
	switch classify(old, now, cli.Version(after.Instance.SoftwareVersion)) {
	case profile.RestartAll:
		i.Restarts, i.Note = append([]string{"control plane"}, workerNames(before)...), "running jobs go on"
	case profile.RestartController:
		i.Restarts, i.Note = []string{"control plane"}, "running jobs go on"
	case profile.Reconfigure:
		i.Reconfigure, i.Note = true, "running jobs go on"
	}
	if note := confinementNote(after); note != confinementNote(before) {
		i.Note = join(i.Note, note)
	}
	if len(i.Restarts) == 0 && !slices.Equal(gpus(before), gpus(after)) {
		i.Reconfigure = true
	}
	var gone []string
	stay := partitionsOf(now)
	for _, p := range partitionsOf(old) {
		if !slices.Contains(stay, p) {
			gone = append(gone, "partition "+p)
		}
	}
	for _, u := range before.Instance.Users {
		if !slices.ContainsFunc(after.Instance.Users, func(v schema.UnixUser) bool { return v.Name == u.Name }) {
			gone = append(gone, "user "+u.Name)
		}
	}
	if len(gone) > 0 {
		i = ends(i, after, "running jobs of "+strings.Join(gone, ", "))
		i.Note = join(i.Note, "their queued jobs are cancelled")
	}
	return i
}

// renderBoth renders slurm.conf for both units with the same host and ports.
func renderBoth(before, after *plan.Unit) (old, now []byte, err error) {
	for _, side := range []struct {
		unit *plan.Unit
		out  *[]byte
	}{{before, &old}, {after, &now}} {
		rec := record{
			Cluster: ClusterName(after.Instance.Key), Unit: *side.unit, Hostname: "controller",
			Ports: ports{Slurmctld: firstPort, Slurmdbd: firstPort + 1},
		}
		if *side.out, err = renderSlurmConf(&rec); err != nil {
			return nil, nil, err
		}
	}
	return old, now, nil
}

func gpus(u *plan.Unit) []string {
	var out []string
	for _, m := range u.Members {
		for _, g := range m.GPUs {
			out = append(out, fmt.Sprintf("%s %s %s", m.Node, g.Type, g.Devices))
		}
	}
	slices.Sort(out)
	return out
}

func workerNames(u *plan.Unit) []string {
	var out []string
	for _, m := range u.Members {
		if !m.ControlPlane {
			out = append(out, m.Name)
		}
	}
	return out
}

func workerNodes(u *plan.Unit) []string {
	var out []string
	if u != nil {
		for _, m := range u.Members {
			if !m.ControlPlane {
				out = append(out, m.Node)
			}
		}
	}
	slices.Sort(out)
	return out
}

// ends adds what happens to jobs by the on_jobs of u.
func ends(i plan.Impact, u *plan.Unit, what string) plan.Impact {
	if u != nil && u.Instance.OnJobs != nil && u.Instance.OnJobs.CancelAfterSeconds > 0 {
		i.EndsJobs = true
		i.Note = join(i.Note, fmt.Sprintf("%s are cancelled after %d s", what, u.Instance.OnJobs.CancelAfterSeconds))
	} else {
		i.Note = join(i.Note, what+" are waited for")
	}
	return i
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}
