package slurm_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
)

// sacctmgr changes the accounting of a unit by hand.
func (c *company) sacctmgr(t testing.TB, u plan.Unit, line string) {
	t.Helper()
	c.tool(t, u, "sacctmgr -i "+strings.ReplaceAll(line, "CLUSTER", cluster.Name(u.Effective.Key)))
}

// details returns the drift of a unit in words.
func details(o plan.Observed) string {
	var all []string
	for _, d := range o.Drift {
		all = append(all, d.Detail)
	}
	return strings.Join(all, "\n")
}

// The next observation reports a change that an administrator made by hand in the accounting, and
// Berth undoes it.
func TestAccountingChangedByHand(t *testing.T) {
	t.Parallel()
	c := &company{stage: newStage(t)}
	c.rt = c.runtime(t)
	u := c.unit(onePartition, []schema.UnixUser{alice, bob}, nil, 0)
	c.carry(t, u, false)
	require.Empty(t, c.observe(t, u).Drift)
	changes := []struct{ hand, reported string }{
		{"modify user where name=berthtest0 set adminlevel=Administrator", "user berthtest0: adminlevel is Administrator, want None"},
		{"modify user where name=berthtest0 cluster=CLUSTER set grptres=cpu=1",
			"user berthtest0 in account members: grptres is cpu=1, want unset"},
		{"modify user where name=berthtest1 cluster=CLUSTER set maxsubmitjobs=3",
			"user berthtest1 in account members: maxsubmitjobs is 3, want unset"},
		{"modify account where name=members cluster=CLUSTER set maxjobs=7 fairshare=9",
			"account members: fairshare is 9, want 1; qos is extra,normal, want unset; defaultqos is extra, want unset; maxjobs is 7, " +
				"want unset"},
		{"modify account where name=root cluster=CLUSTER set grptres=gres/gpu=1", "account root: grptres is gres/gpu=1, want unset"},
		{"add account other cluster=CLUSTER", "account other: not declared"},
		{"add account below cluster=CLUSTER parent=other", "account below: not declared"},
		{"add user berthtest1 account=below cluster=CLUSTER maxjobs=1", "user berthtest1 in account below: not declared"},
		{"add user berthtest1 account=members partition=main cluster=CLUSTER", ""}, // gives no more access
		{"modify user where name=berthtest1 account=members partition=main cluster=CLUSTER set grptres=cpu=2",
			"user berthtest1 in account members: grptres is cpu=2, want unset"},
		{"modify user where name=berthtest1 cluster=CLUSTER set defaultaccount=below",
			"user berthtest1: defaultaccount is below, want members"},
		{"add coordinator names=berthtest1 account=members", "user berthtest1: coordinator of account members, want none"},
		{"add user eve account=members cluster=CLUSTER adminlevel=Operator", "user eve: not declared"},
		{"add qos extra preempt=normal", "QoS extra: not declared"},
		{"modify qos where name=normal set maxjobsperuser=2 flags=DenyOnLimit",
			"QoS normal: flags is DenyOnLimit, want unset; maxjobsperuser is 2, want unset"},
		{"modify account where name=members cluster=CLUSTER set qos=extra,normal defaultqos=extra", ""},
	}
	for _, by := range changes {
		c.sacctmgr(t, u, by.hand)
	}
	reported := details(c.observe(t, u))
	for _, by := range changes {
		require.Contains(t, reported, by.reported, by.hand)
	}
	c.carry(t, u, false)
	require.Empty(t, c.observe(t, u).Drift)
	require.Equal(t, "members|berthtest0||\nmembers|berthtest1|main|\nmembers|berthtest1||\nmembers|||\nroot|root||\nroot|||\n",
		c.tool(t, u, "sacctmgr -n -P list assoc format=account,user,partition,grptres | LC_ALL=C sort"))

	// A user removed by hand is added again, and may submit.
	c.sacctmgr(t, u, "delete user where name=berthtest0 cluster=CLUSTER")
	require.Contains(t, details(c.observe(t, u)), "user berthtest0: missing")
	c.carry(t, u, false)
	c.await(t, u, c.submit(t, u, alice, "true", 0), slurmtest.Completed)
}

// removal configures a unit until something has to wait or all is done. A configure that
// finds other work does not say what waits.
func (c *company) removal(t testing.TB, u plan.Unit) error {
	t.Helper()
	for range 3 {
		p := c.plan(t, u, false)
		if p.Empty() {
			return nil
		}
		if err := c.apply(t, p); err != nil {
			return err
		}
	}
	return nil
}
