//go:build long

package slurm_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// The version that an AppVersion declares is compared with the packages of real hosts.
func TestLongDeclaredVersionIsThatOfTheHosts(t *testing.T) {
	t.Parallel()
	c, u := newCompany(t, onePartition, 0)
	out, err := c.lab.Run(t.Context(), c.control.Key.Name, "slurmctld", "-V")
	require.NoError(t, err)
	installed, err := cli.Installed(profile.Slurmctld).Decode(cli.Answer{Stdout: []byte(out)})
	require.NoError(t, err)

	u.Effective.SoftwareVersion = string(installed)
	c.carry(t, u, false)
	next := c.unit(onePartition, []schema.UnixUser{alice}, nil, 0, 1)
	next.Effective.AppSelection = schema.AppSelection{App: "slurm", Version: "next", RuntimeBackend: "slurm", SoftwareVersion: "99.11"}
	obs := c.rt.Observe(t.Context(), runtimes.Scope{Key: u.Effective.Key, Candidates: []*schema.Node{c.control}, Instance: &next.Effective})
	require.Len(t, obs.Drift, 2)
	require.Equal(t, "host ctl: slurmctld "+string(installed)+
		" is installed, and AppVersion slurm/next declares 99.11: install Slurm 99.11 on the host, or let the instance name an "+
		"AppVersion that declares "+string(installed), obs.Drift[0].Detail)

	p := plan.Plan{Key: u.Effective.Key, Before: &u, After: &next}
	a := plan.Action{ID: "join.1", Verb: plan.Join, Member: "worker-1", Node: c.workers[1].Key.Name}
	before := c.snapshot(t, a.Node)
	err = c.rt.Apply(t.Context(), runtimes.Change{Plan: &p, Action: a,
		Stamp: runtimes.Stamp{Epoch: 1, ActionID: a.ID, Verb: string(a.Verb)}})
	require.ErrorContains(t, err, "host "+a.Node+": slurmd "+string(installed)+" is installed, and AppVersion slurm/next declares 99.11")
	require.Equal(t, before, c.snapshot(t, a.Node))
	next.Effective.SoftwareVersion = string(installed)
	c.carry(t, next, false)
}
