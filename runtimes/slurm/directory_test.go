package slurm_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/runtimes"
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
)

// With identity external the hosts have the users from a directory, here from a file. A user
// whom the directory does not have yet holds up nothing else, and the jobs of one whom it has no
// more end with the removal.
func TestUsersOfADirectory(t *testing.T) {
	t.Parallel()
	c := &company{stage: bareStage(t)}
	c.rt = c.runtime(t)
	hosts := []string{c.control.Key.Name, c.workers[0].Key.Name}
	for _, h := range hosts {
		c.changeFile(t, h, "/etc/shadow", "")
		c.changeFile(t, h, "/etc/group", "")
		c.changeFile(t, h, "/etc/passwd", "")
	}
	directory := func(script string) {
		for _, h := range hosts {
			out, err := c.lab.Run(t.Context(), h, "sh", "-c", script)
			require.NoError(t, err, out)
		}
	}
	enter := func(u schema.UnixUser) {
		directory(fmt.Sprintf("echo '%s:x:%d:%[2]d::/tmp:/bin/bash' >>/etc/passwd; echo '%[1]s:x:%[2]d:' >>/etc/group; echo "+
			"'%[1]s:!:20000:0:99999:7:::' >>/etc/shadow", u.Name, u.UID))
	}
	external := func(config string) string { return strings.Replace(config, `"managed"`, `"external"`, 1) }
	enter(alice)
	u := c.unit(external(onePartition), []schema.UnixUser{alice}, nil, 0)
	c.carry(t, u, false)
	c.await(t, u, c.submit(t, u, alice, "true", 1), slurmtest.Completed)

	more := c.unit(external(twoPartitions), []schema.UnixUser{alice, bob}, nil, 0)
	require.NoError(t, c.apply(t, c.plan(t, more, false)))
	require.Contains(t, c.tool(t, more, "sinfo -h -o %R"), "quick")
	err := c.apply(t, c.plan(t, more, false))
	require.ErrorIs(t, err, runtimes.ErrWaiting)
	require.ErrorContains(t, err, "user "+bob.Name+": want uid")
	require.NotContains(t, c.tool(t, more, "sacctmgr -n -P list user format=user"), bob.Name)
	enter(bob)
	c.carry(t, more, false)
	c.await(t, more, c.submit(t, more, bob, "true", 1), slurmtest.Completed)

	running := c.submit(t, more, alice, "sleep 600", 2)
	c.await(t, more, running, slurmtest.Running)
	c.await(t, more, c.submit(t, more, alice, "sleep 600", 2), slurmtest.Pending)
	directory("sed -i '/^" + alice.Name + ":/d' /etc/passwd /etc/group /etc/shadow")
	less := c.unit(external(twoPartitions), []schema.UnixUser{bob}, nil, 0)
	err = c.removal(t, less)
	require.ErrorIs(t, err, runtimes.ErrWaiting)
	require.ErrorContains(t, err, "user "+alice.Name+" still has running jobs")
	require.Equal(t, running, strings.TrimSpace(c.tool(t, less, "squeue -h -o %i")))
	less.Effective.OnJobs = &schema.OnJobs{CancelAfterSeconds: 1}
	eventually(t, "the user is removed", func() (bool, string) {
		err := c.removal(t, less)
		p := c.plan(t, less, false)
		return err == nil && p.Empty(), fmt.Sprint(err, p.Actions)
	})
	require.Empty(t, strings.TrimSpace(c.tool(t, less, "squeue -h -o %i -t running,pending")))
	require.NotContains(t, c.tool(t, less, "sacctmgr -n -P list user format=user"), alice.Name)
}
