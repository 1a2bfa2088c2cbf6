package slurm_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes/slurm/profile"
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
)

// siteConfig is a config of a site whose schedulers run often enough for a test.
const siteConfig = `{
	"partitions": [{"name": "main", "default": true, "priority_tier": 1}, {"name": "urgent", "priority_tier": 100, "max_time_minutes": 30, "nodes": {"names": ["%s"]}}],
	"scheduler": {"interval_seconds": 5, "cycle_seconds": 1, "batch_delay_seconds": 0, "bf_max_job_test": 200},
	"jobs": {"default_time_minutes": 60, "max_time_minutes": 10080, "gpu_defaults": "share", "kill_wait_seconds": 30, "unkillable_step_seconds": 180,
		"billing": {"cpu": 4, "memory_gib": 1, "gpu": 32}},
	"nodes": {"timeout_seconds": 300, "return_to_service": 1},
	"priority": {"type": "multifactor", "weights": {"age": 1000, "fairshare": 10000, "job_size": 100, "partition": 1000, "qos": 2000}, "decay_half_life_hours": 168, "max_age_hours": 168},
	"preemption": {"by": "partition", "mode": "requeue", "exempt_minutes": 0},
	"private_data": ["jobs"],
	"topology": {"switches": [{"name": "rack1", "nodes": ["%[1]s"]}, {"name": "rack2", "nodes": ["elsewhere"]}]},
	"options": {"MaxArraySize": 2002, "KillOnBadExit": 1},
	"identity": "managed", "confinement": "cgroup"
}`

// A cluster with the config of a site does what its fields say.
func TestSiteConfig(t *testing.T) {
	t.Parallel()
	c := &company{stage: newStage(t)}
	c.rt = c.runtime(t)
	users := []schema.UnixUser{alice, bob}
	config := fmt.Sprintf(siteConfig, c.workers[0].Key.Name)
	u := c.unit(config, users, nil, 0, 1)
	c.carry(t, u, false)
	show := func(what string) string { return c.tool(t, u, "scontrol -o show "+what) }
	node := c.workers[0].Spec.Capacity

	// A GPU job that asks for nothing else has its share of the node, the default time, and
	// its bill.
	on := "--nodelist=" + c.workers[0].Key.Name
	small, err := c.trySubmit(t, u, alice, "sleep 600\n", "--gres=gpu:1", on)
	require.NoError(t, err)
	c.await(t, u, small, slurmtest.Running)
	job := show("job " + small)
	require.Contains(t, job, fmt.Sprintf("cpu=%d,mem=%dM,", node.CPUs/2, node.MemoryMiB/2))
	require.Contains(t, job, " TimeLimit=01:00:00 ")
	require.Contains(t, job, fmt.Sprintf("billing=%d", 4*node.CPUs/2+node.MemoryMiB/2/1024+32))

	// A job of a higher tier requeues it.
	urgent, err := c.trySubmit(t, u, bob, "sleep 600\n", "--gres=gpu:2", "--partition=urgent")
	require.NoError(t, err)
	c.await(t, u, urgent, slurmtest.Running)
	require.Contains(t, show("job "+small), " Restarts=1 ")

	// A user does not see the jobs of another one.
	as := fmt.Sprintf("setpriv --reuid=%d --regid=%d --clear-groups squeue -h -o %%i", alice.UID, alice.UID)
	require.Equal(t, small, strings.TrimSpace(c.tool(t, u, as)))

	require.Contains(t, show("topology"), "SwitchName=rack1 Level=0")
	require.Contains(t, show("topology"), "SwitchName=root Level=1")

	// Each of these changes is activated as predicted, and the job goes on.
	running := c.await(t, u, urgent, slurmtest.Running)
	for _, change := range [][2]string{
		{`"names": ["` + c.workers[0].Key.Name + `"]`, `"gpu_types": ["a100"]`},
		{`["elsewhere"]`, `["` + c.workers[1].Key.Name + `"]`},
		{`"timeout_seconds": 300`, `"timeout_seconds": 200`},
		{`"MaxArraySize": 2002`, `"MaxArraySize": 3003`},
		{`"private_data": ["jobs"]`, `"private_data": []`},
		{`"type": "multifactor"`, `"type": "basic"`},
		{`"identity": "managed"`, `"retention": {"records_months": 24, "usage_months": 36}, "identity": "managed"`},
		{fmt.Sprintf(`{"switches": [{"name": "rack1", "nodes": ["%s"]}, {"name": "rack2", "nodes": ["%s"]}]}`, c.workers[0].Key.Name,
			c.workers[1].Key.Name), `{"switches": []}`},
	} {
		require.Contains(t, config, change[0])
		config = strings.Replace(config, change[0], change[1], 1)
		u = c.unit(config, users, nil, 0, 1)
		p := c.plan(t, u, false)
		require.Len(t, p.Actions, 1, change[1])
		restarts := slices.Contains(p.Actions[0].Impact.Restarts, profile.Slurmctld)
		was := c.onControl(t, u, "cat $run/slurmctld.pid")
		c.carry(t, u, false)
		if !c.version.Reexecutes() {
			require.Equal(t, restarts, was != c.onControl(t, u, "cat $run/slurmctld.pid"), change[1])
		}
		require.Equal(t, running, c.await(t, u, urgent, slurmtest.Running), change[1])
	}
	require.Contains(t, show("partition urgent"), " TotalNodes=2 ")
	variable := c.tool(t, u, "mariadb --no-defaults --user=root --socket=/run/berth-mariadb/mariadbd.sock -e \"show variables like "+
		"'innodb_snapshot_isolation'\"")
	require.NotContains(t, variable, "ON", "slurmdbd 26.05 ends when two of its transactions meet")
	kept := c.tool(t, u, "sacctmgr show config")
	for name, months := range map[string]int{"Event": 24, "Job": 24, "Resv": 24, "Step": 24, "Suspend": 24, "TXN": 24, "Usage": 36} {
		require.Regexp(t, fmt.Sprintf(`Purge%sAfter += %d months`, name, months), kept)
	}
}

// A reservation for maintenance keeps jobs from its nodes that would still run at its start. It
// is changed and deleted with the config, and one of an administrator is left alone.
func TestReservations(t *testing.T) {
	t.Parallel()
	c := &company{stage: newStage(t)}
	c.rt = c.runtime(t)
	start := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	config := func(reservations string) plan.Unit {
		return c.unit(strings.Replace(onePartition, "{", `{"reservations":[`+reservations+`],`, 1), []schema.UnixUser{alice}, nil, 0, 1)
	}
	reserved := func(name string, start time.Time, minutes int, nodes string) string {
		return fmt.Sprintf(`{"name":%q,"start":%q,"duration_minutes":%d%s}`, name, start.Format(time.RFC3339), minutes, nodes)
	}
	on := fmt.Sprintf(`,"nodes":{"names":[%q]}`, c.workers[0].Key.Name)
	u := config(reserved("service", start, 120, on) + "," + reserved("past", start.Add(-9*time.Hour), 60, ""))
	c.carry(t, u, false)
	show := func(u plan.Unit) string { return c.tool(t, u, "env TZ=UTC scontrol -o show reservations") }
	at := func(s time.Time) string { return "StartTime=" + s.Format("2006-01-02T15:04:05") + " " }
	require.Contains(t, show(u), "ReservationName=berth-service "+at(start))
	require.Contains(t, show(u), " Nodes="+c.workers[0].Key.Name+" ")
	require.NotContains(t, show(u), "past")

	// A job that ends before it begins runs on the node; a longer one waits for another node.
	short, err := c.trySubmit(t, u, alice, "sleep 600\n", "--time=30", "--nodelist="+c.workers[0].Key.Name)
	require.NoError(t, err)
	running := c.await(t, u, short, slurmtest.Running)
	long, err := c.trySubmit(t, u, alice, "sleep 600\n", "--time=90", "--nodelist="+c.workers[0].Key.Name)
	require.NoError(t, err)
	eventually(t, "the long job waits", func() (bool, string) {
		out := c.tool(t, u, "squeue -h -o '%T|%r' -j "+long)
		return strings.HasPrefix(out, "PENDING|") && strings.Contains(out, "ReqNodeNotAvail"), out
	})

	// By hand: deleted, and one of an administrator.
	c.tool(t, u, "scontrol delete reservationname=berth-service")
	c.tool(t, u, "scontrol create reservation reservationname=mine starttime=now+3hours duration=10 nodes=ALL users=root flags=MAINT")
	p := c.plan(t, u, false)
	require.Equal(t, []plan.Verb{plan.Configure}, verbs(p))
	require.Contains(t, p.Actions[0].Reason, "reservations")
	c.carry(t, u, false)
	require.Contains(t, show(u), "ReservationName=berth-service "+at(start))

	// Changed, with another beside it.
	u = config(reserved("service", start.Add(time.Hour), 120, "") + "," +
		reserved("now", time.Now().UTC().Truncate(time.Second).Add(-time.Minute), 60, on))
	p = c.plan(t, u, false)
	require.Contains(t, fmt.Sprint(p.Actions[0].Impact.Notes),
		"jobs that would still run at "+start.Add(time.Hour).Format(time.RFC3339)+" wait for the end of reservation service")
	c.carry(t, u, false)
	require.Contains(t, show(u), "ReservationName=berth-service "+at(start.Add(time.Hour)))
	require.Contains(t, show(u), "ReservationName=berth-now ")
	require.Equal(t, running, c.await(t, u, short, slurmtest.Running), "a running job goes on")

	none := config(reserved("nowhere", start, 120, `,"nodes":{"names":["elsewhere"]}`))
	require.Contains(t, fmt.Sprint(c.plan(t, none, false).Actions[0].Impact.Notes),
		"reservation nowhere is not made, as its nodes select no worker")
	u = config("")
	c.carry(t, u, false)
	require.NotContains(t, show(u), "berth-")
	require.Contains(t, show(u), "ReservationName=mine ")
	c.await(t, u, long, slurmtest.Running)
}
