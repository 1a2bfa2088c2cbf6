//go:build long

package slurm_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm"
	"berth/runtimes/slurm/profile"
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
)

// A start of slurmctld brings about what it needs first: accounting that has what its files name, also after a database
// was restored under slurmdbd; an id for the next job that no job has; and it needs no slurmdbd that cannot serve.
func TestLongSlurmctldStartsAfterEachCrash(t *testing.T) {
	t.Parallel()
	c := &company{stage: newStageOf(t, 2)}
	c.rt = c.runtime(t)
	u := c.unit(strings.TrimSuffix(onePartition, "}")+`,"nodes":{"return_to_service":1,"timeout_seconds":300}}`,
		[]schema.UnixUser{alice, bob}, nil, 0, 1)
	c.carry(t, u, false)
	sql := "mariadb --no-defaults --user=root --socket=/run/berth-mariadb/mariadbd.sock "
	database := "$(" + sql + "-N -e 'show databases' | grep slurm_acct_)"
	c.onControl(t, u, "mariadb-dump --no-defaults --user=root --socket=/run/berth-mariadb/mariadbd.sock --databases "+database+
		" >/root/yesterday.sql")

	u.Effective.Config = []byte(strings.Replace(string(u.Effective.Config), `"partitions":[{`,
		`"qos":[{"name":"high"}],"partitions":[{"qos":"high",`, 1))
	c.carry(t, u, false)

	// The QoS that the partition names is gone.
	c.onControl(t, u, "sacctmgr -i delete qos high")
	c.kill(t, u, "controller-0")
	c.carry(t, u, false)
	id, err := c.trySubmit(t, u, alice, "true")
	require.NoError(t, err)
	c.await(t, u, id, slurmtest.Completed)

	// The database is that of yesterday, under a slurmdbd that remembers today's.
	c.onControl(t, u, sql+"</root/yesterday.sql")
	c.kill(t, u, "controller-0")
	c.carry(t, u, false)
	require.Contains(t, c.tool(t, u, "sacctmgr -n -P list qos format=name"), "high")

	// slurmdbd cannot start.
	c.onControl(t, u, "mv /usr/sbin/slurmdbd /usr/sbin/slurmdbd.gone; pkill -9 -x slurmdbd || true")
	c.kill(t, u, "controller-0")
	err = c.apply(t, c.plan(t, u, false))
	require.ErrorContains(t, err, "accounting is down, and slurmctld serves without it")
	id, err = c.trySubmit(t, u, alice, "sleep 600")
	require.NoError(t, err)
	eventually(t, "the job runs", func() (bool, string) {
		state := c.tool(t, u, "squeue -h -o %t -j "+id)
		return strings.TrimSpace(state) == "R", state
	})
	c.tool(t, u, "scancel "+id)
	c.onControl(t, u, "mv /usr/sbin/slurmdbd.gone /usr/sbin/slurmdbd")
	c.carry(t, u, false)

	// Ids that slurmctld gave after it last saved its state are not given again. The jobs are held: slurmctld would start one again
	// that it started after it last saved its state, and would drain its node for the duplicate.
	var given []int
	for range 3 {
		out := c.onControl(t, u, "for i in $(seq 20); do "+"sbatch --parsable --hold -o /dev/null --wrap='sleep 1' --uid="+alice.Name+
			"; done; kill -9 $(cat /run/slurm-*/slurmctld.pid)")
		for _, line := range strings.Fields(out) {
			n, err := strconv.Atoi(line)
			require.NoError(t, err, out)
			given = append(given, n)
		}
		c.carry(t, u, false)
	}
	require.Len(t, given, 60)
	slices.Sort(given)
	require.Len(t, slices.Compact(given), 60)
	c.tool(t, u, "scancel --user="+alice.Name)

	// The reason of an end is in the error and in the state.
	c.onControl(t, u, "echo another >"+profile.StateDir+"/$(basename $(dirname $SLURM_CONF))/state/clustername")
	c.kill(t, u, "controller-0")
	err = c.apply(t, c.plan(t, u, false))
	t.Log(err)
	require.ErrorContains(t, err, "fatal")
	require.Contains(t, fmt.Sprint(c.observe(t, u).Members), "fatal")
}

// A job that slurmctld has lost in a crash is named with its user, and ends in accounting; a job that it has goes on.
func TestLongLostJobsAreNamed(t *testing.T) {
	t.Parallel()
	c := &company{stage: newStageOf(t, 2)}
	c.rt = c.runtime(t)
	u := c.unit(onePartition, []schema.UnixUser{alice, bob}, nil, 0, 1)
	c.carry(t, u, false)
	kept, err := c.trySubmit(t, u, alice, "sleep 600")
	require.NoError(t, err)
	c.await(t, u, kept, slurmtest.Running)
	const state = profile.StateDir + "/$(basename $etc)/state"
	c.onControl(t, u, "scontrol shutdown slurmctld; while pgrep -x slurmctld >/dev/null; do :; done; cp -a "+state+" /root/saved")
	c.carry(t, u, false)
	lost, err := c.trySubmit(t, u, bob, "sleep 600")
	require.NoError(t, err)
	eventually(t, "accounting has the job", func() (bool, string) {
		text := c.tool(t, u, "sacct -anPX -o State -j "+lost)
		return strings.TrimSpace(text) == "RUNNING", text
	})
	c.onControl(t, u, "kill -9 $(cat $run/slurmctld.pid); rm -rf "+state+"; mv /root/saved "+state)
	c.carry(t, u, false)
	n, err := strconv.Atoi(lost)
	require.NoError(t, err)
	require.Equal(t, []plan.LostJob{{ID: n, User: bob.Name}}, c.lost)
	require.NotContains(t, c.tool(t, u, "sacct -anPX -o State -j "+lost), "RUNNING")
	c.await(t, u, kept, slurmtest.Running)
	c.tool(t, u, "scancel "+kept)
}

// A lost state, accounting or controller is not replaced by an empty one before a person accepts the loss. Then the
// cluster runs jobs again, and no job id repeats while Slurm, accounting or Berth remembers it.
func TestLongLossWaitsForAPerson(t *testing.T) {
	t.Parallel()
	c := &company{stage: newStageOf(t, 2)}
	c.rt = c.runtime(t)
	u := c.unit(onePartition, []schema.UnixUser{alice}, nil, 0, 1)
	c.carry(t, u, false)
	id, err := c.trySubmit(t, u, alice, "sleep 600")
	require.NoError(t, err)
	c.await(t, u, id, slurmtest.Running)
	runs := func() string {
		t.Helper()
		next, err := c.trySubmit(t, u, alice, "true")
		require.NoError(t, err)
		c.await(t, u, next, slurmtest.Completed)
		return next
	}
	accept := func(name string) {
		t.Helper()
		o := plan.Operation{ID: name, Name: name, Spec: schema.MemberOperationSpec{Operation: schema.OpAccept, Reason: "a test"}}
		p := plan.Make(plan.Input{Key: u.Effective.Key, After: &u.Effective, Members: u.Members, Observed: c.observe(t, u),
			Operations: []plan.Operation{o}, Rules: c.rt})
		p.Actions = slices.DeleteFunc(p.Actions, func(a plan.Action) bool { return a.Verb != plan.AcceptLoss })
		require.NoError(t, c.apply(t, p))
		c.carry(t, u, false)
	}

	// slurmdbd without its account at the database would run and listen nowhere.
	c.onControl(t, u, "mariadb --no-defaults --user=root --socket=/run/berth-mariadb/mariadbd.sock -e 'drop user slurm@localhost'; kill "+
		"-9 $(cat /run/slurm-*/slurmdbd.pid)")
	c.carry(t, u, false)
	runs()

	c.onControl(t, u, "kill -9 $(cat /run/slurm-*/slurmctld.pid); rm -rf "+profile.StateDir+"/$(basename $(dirname $SLURM_CONF))/state")
	err = c.apply(t, c.plan(t, u, false))
	require.ErrorContains(t, err, "slurmctld has lost its state")
	processes := fmt.Sprintf("pgrep -U %d || true", alice.UID)
	require.NotEmpty(t, strings.TrimSpace(c.onWorker(t, 0, processes)+c.onWorker(t, 1, processes)), "its jobs go on")
	accept("state")
	first, err := strconv.Atoi(runs())
	require.NoError(t, err)
	require.Greater(t, first, 1000, "no id is given twice")

	lose := func() {
		t.Helper()
		c.onControl(t, u, "mariadb --no-defaults --user=root --socket=/run/berth-mariadb/mariadbd.sock -e \"drop database "+
			"slurm_acct_$(basename $(dirname $SLURM_CONF))\"; for d in slurmctld slurmdbd; do kill -9 $(cat /run/slurm-*/$d.pid); done")
	}
	lose()
	err = c.apply(t, c.plan(t, u, false))
	require.ErrorContains(t, err, "accounting of the cluster")
	require.ErrorContains(t, err, "is lost")
	accept("accounting")
	runs()
	ended := strings.TrimSpace(c.onControl(t, u, "date +%s"))
	c.tool(t, u, "scontrol update nodename=ALL state=drain reason=test")
	_, err = c.trySubmit(t, u, alice, "true") // slurmctld saves it, with the one that ended
	require.NoError(t, err)
	eventually(t, "slurmctld has saved the job that ended", func() (bool, string) {
		saved := strings.TrimSpace(c.onControl(t, u, "stat -c %Y "+profile.StateDir+"/$(basename $(dirname $SLURM_CONF))/state/job_state 2>/dev/null || true"))
		return saved >= ended, saved + ", " + ended
	})

	lose()
	// The deletion is the decision. slurmctld enters its cluster in the new accounting, which lacks that job.
	var drained atomic.Bool
	c.hosts.onRun(func(r *runtimes.Run) {
		drained.Store(drained.Load() || slices.Contains(r.Args, "update"))
		if drained.Load() && r.Program == "sacctmgr" {
			c.hosts.onRun(nil)
			eventually(t, "slurmctld has entered its cluster", func() (bool, string) {
				clusters := c.tool(t, u, "sacctmgr -n show cluster format=cluster")
				return strings.TrimSpace(clusters) != "", clusters
			})
		}
	})
	c.carry(t, u, true)
}

// The controller is lost with its disk and is made again by the steps of availability.md: nothing is made before a person
// accepts the loss; then the workers join the new one, and the accounting is that of the last backup.
func TestLongLostControllerIsRestored(t *testing.T) {
	t.Parallel()
	c := &company{stage: bareStage(t)}
	days := 0
	c.rt = slurm.New(slurm.Options{Hosts: c.hosts, Timeouts: generous, Now: func() time.Time { return time.Now().AddDate(0, 0, days) }})
	u := c.unit(onePartition, []schema.UnixUser{alice}, nil, 0)
	c.carry(t, u, false)
	recorded, err := c.trySubmit(t, u, alice, "true")
	require.NoError(t, err)
	state := func(id string) string { return strings.TrimSpace(c.tool(t, u, "sacct -anPX -o State -j "+id)) }
	eventually(t, "accounting has the job", func() (bool, string) { return state(recorded) == "COMPLETED", state(recorded) })
	days = 1
	c.carry(t, u, false) // the backup of the night
	days = 0
	c.onControl(t, u, "cp -a /var/lib/berth/backups /root/copies")
	running, err := c.trySubmit(t, u, alice, "sleep 600")
	require.NoError(t, err)
	c.await(t, u, running, slurmtest.Running)

	c.onControl(t, u, "pkill -9 -x 'slurmctld|slurmdbd|mariadbd|munged'; rm -rf /var/lib/berth /var/lib/slurm/*_* /var/lib/slurm/berth-* "+
		"/var/log/slurm/* /etc/slurm/*_* /run/slurm-* /run/munge-* /run/berth-* /etc/munge/*_*.key /var/log/munge/* /var/lib/munge/* "+
		"/etc/logrotate.d/berth-*; sed -i '/^"+alice.Name+":/d' /etc/passwd /etc/shadow /etc/group /etc/gshadow")
	in := plan.Input{Key: u.Effective.Key, After: &u.Effective, Members: u.Members, Observed: c.observe(t, u), Rules: c.rt, Made: true}
	lost := plan.Make(in)
	require.Empty(t, lost.Actions)
	require.Equal(t, plan.CodeLost, lost.Blocked[0].Code)

	in.Operations = []plan.Operation{{ID: "disk", Name: "disk",
		Spec: schema.MemberOperationSpec{Operation: schema.OpAccept, Reason: "a test"}}}
	accepted := plan.Make(in)
	accepted.Actions = slices.DeleteFunc(accepted.Actions, func(a plan.Action) bool { return a.Verb == plan.AcceptLoss })
	require.NoError(t, c.apply(t, accepted))
	c.carry(t, u, false)
	eventually(t, "the jobs that ran have ended", func() (bool, string) {
		left := strings.TrimSpace(c.onWorker(t, 0, fmt.Sprintf("pgrep -a -U %d || true", alice.UID)))
		return left == "", left
	})
	require.Empty(t, state(recorded))

	c.onControl(t, u, "for d in slurmctld slurmdbd; do kill $(cat $run/$d.pid); done; while pgrep -x 'slurmctld|slurmdbd' >/dev/null; do "+
		"sleep 0.1; done; "+
		"cluster=$(basename $etc); name=$(basename -s .sql /root/copies/$cluster/*.sql); "+
		"mariadb --no-defaults --user=root --socket=/run/berth-mariadb/mariadbd.sock slurm_acct_$cluster "+
		"</root/copies/$cluster/$name.sql; "+
		"mv /var/lib/slurm/$cluster/state /root/state.empty; tar -xf /root/copies/$cluster/$name.state.tar -C /var/lib/slurm/$cluster")
	c.carry(t, u, false)
	require.Equal(t, "COMPLETED", state(recorded), "it is in the backup")
	next, err := c.trySubmit(t, u, alice, "true")
	require.NoError(t, err)
	eventually(t, "accounting has the next job", func() (bool, string) { return strings.HasSuffix(state(next), "COMPLETED"), state(next) })
	c.onControl(t, u, "rm -r /root/copies /root/state.empty")
	c.carry(t, u, true)
	require.Empty(t, c.remains(t, u))
}

// Berth rebuilds each of its small files on a host that was truncated, and jobs go on.
func TestLongDamagedFilesAreMadeAgain(t *testing.T) {
	t.Parallel()
	c := &company{stage: newStageOf(t, 1)}
	c.rt = c.runtime(t)
	u := c.unit(onePartition, []schema.UnixUser{alice}, nil, 0)
	c.carry(t, u, false)
	id, err := c.trySubmit(t, u, alice, "sleep 600")
	require.NoError(t, err)
	c.await(t, u, id, slurmtest.Running)
	for _, file := range []string{"instances/*_*.json", "instances/*_*.json*", "users.json", "paths.json"} {
		cut := "for f in /var/lib/berth/" + file + "; do truncate -s $(($(stat -c %s $f) / 2)) $f; done; rm -rf /etc/slurm/*/gres.conf"
		c.onControl(t, u, cut)
		c.carry(t, u, false)
	}
	for _, file := range []string{"instances/worker.json", "users.json", "paths.json"} {
		c.onWorker(t, 0, "f=/var/lib/berth/"+file+"; truncate -s $(($(stat -c %s $f) / 2)) $f; pkill -x slurmd")
		c.carry(t, u, false)
	}
	require.Empty(t, c.observe(t, u).Drift)
	c.await(t, u, id, slurmtest.Running)
	c.tool(t, u, "scancel "+id)
	c.await(t, u, id, slurmtest.Failed)
	c.carry(t, u, true)
	require.Empty(t, strings.TrimSpace(c.onWorker(t, 0, "pgrep -x slurmd || true")))
}
