package slurm_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
)

// listCounter counts the lists that the tools of Slurm are asked for, by kind.
type listCounter struct {
	inner runtimes.Hosts

	mu    sync.Mutex
	lists map[string]int
}

func (l *listCounter) Host(m plan.Member) runtimes.Host { return countedHost{l, l.inner.Host(m)} }

func (l *listCounter) Close() error { return l.inner.Close() }

type countedHost struct {
	l *listCounter
	runtimes.Host
}

func (h countedHost) Do(ctx context.Context, stamp runtimes.Stamp, ops ...runtimes.Op) ([]runtimes.Result, error) {
	h.l.mu.Lock()
	for _, op := range ops {
		if op.Run != nil && slurm.ListKind(op.Run) != "" {
			h.l.lists[h.Name()+" "+slurm.ListKind(op.Run)]++
		}
	}
	h.l.mu.Unlock()
	return h.Host.Do(ctx, stamp, ops...)
}

// most returns how often one kind of list was asked for since the last call.
func (l *listCounter) most() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, times := range l.lists {
		n = max(n, times)
	}
	l.lists = map[string]int{}
	return n
}

// ledgers returns the number of effects in the ledgers of all hosts.
func (c *company) ledgers(t testing.TB) (n int) {
	t.Helper()
	for _, host := range append([]*schema.Node{c.control}, c.workers...) {
		out, err := c.lab.Run(t.Context(), host.Key.Name, "sh", "-c", "wc -l </var/lib/berth/ledger.jsonl")
		require.NoError(t, err)
		lines, err := strconv.Atoi(strings.TrimSpace(out))
		require.NoError(t, err)
		n += lines
	}
	return n
}

// milliseconds returns the median time of rounds of f.
func milliseconds(rounds int, f func(round int)) float64 {
	var all []float64
	for i := range rounds {
		began := time.Now()
		f(i)
		all = append(all, float64(time.Since(began).Microseconds())/1000)
	}
	slices.Sort(all)
	return all[rounds/2]
}

// addProject attaches a project with so many new users to a unit.
func addProject(u *plan.Unit, name string, users int, guaranteed schema.Amount) *schema.EffectiveAttachment {
	a := schema.EffectiveAttachment{ProjectID: "physics." + name, Name: name, Share: 1, Guaranteed: guaranteed}
	u.Effective.Users, u.Effective.Attachments = slices.Clone(u.Effective.Users), slices.Clone(u.Effective.Attachments)
	for range users {
		user := schema.UnixUser{Name: fmt.Sprintf("berthtest_%04d", len(u.Effective.Users)), UID: 43000 + len(u.Effective.Users)}
		u.Effective.Users, a.Users = append(u.Effective.Users, user), append(a.Users, user.Name)
	}
	u.Effective.Attachments = append(u.Effective.Attachments, a)
	return &u.Effective.Attachments[len(u.Effective.Attachments)-1]
}

var oneGPU = schema.Amount{GPUs: 1, CPUs: 1}

// BenchmarkSharedAttachments measures a runtime with 50 attachments, each with a guaranteed share
// but that of the last one: from the begin of the observation until the action is done. The peers
// are the commands of an administrator on the same hosts.
func BenchmarkSharedAttachments(b *testing.B) {
	for b.Loop() {
		c := &company{stage: newStageOf(b, 2)}
		counter := &listCounter{inner: c.hosts, lists: map[string]int{}}
		c.rt = slurm.New(slurm.Options{Hosts: counter})
		u := c.unit(onePartition, nil, nil, 0, 1)
		for i := range 49 {
			addProject(&u, fmt.Sprintf("p%02d", i), 1, oneGPU)
		}
		c.carry(b, u, false)

		last := addProject(&u, "p49", 500, schema.Amount{})
		b.ReportMetric(milliseconds(1, func(int) { require.NoError(b, c.apply(b, c.plan(b, u, false))) }), "attach-ms")
		newest := u.Effective.Users[len(u.Effective.Users)-1]
		c.await(b, u, c.job(b, u, newest, last.ProjectID, "true"), slurmtest.Completed)

		before := c.ledgers(b)
		counter.most()
		lists := 0
		b.ReportMetric(milliseconds(5, func(int) {
			again := c.plan(b, u, false)
			require.True(b, again.Empty(), "%+v", again.Actions)
			lists = max(lists, counter.most())
		}), "reconcile-ms")
		b.ReportMetric(float64(lists), "reconcile-lists")
		b.ReportMetric(float64(c.ledgers(b)-before), "reconcile-writes")
		b.ReportMetric(milliseconds(5, func(int) { c.listByHand(b, u) }), "lists-by-hand-ms")

		c.changeTerms(b, &u)
		with := u
		addProject(&with, "p50", 500, oneGPU)
		b.ReportMetric(milliseconds(1, func(int) { require.NoError(b, c.apply(b, c.plan(b, with, false))) }), "attach-guaranteed-ms")
		b.ReportMetric(milliseconds(1, func(int) { c.attachByHand(b, with, "hand", 500) }), "attach-by-hand-ms")
	}
}

// changeTerms reports the time that a change of the limits of one attachment takes, and what it
// touches besides.
func (c *company) changeTerms(b *testing.B, u *plan.Unit) {
	b.Helper()
	for i := range 24 {
		a := u.Effective.Attachments[i]
		c.job(b, *u, u.Effective.Users[i], a.ProjectID, "sleep 3600", "--gres=gpu:1", "--time=60")
	}
	running := func() string { return c.tool(b, *u, "squeue -h -t R -o %i | wc -l") }
	eventually(b, "the nodes are full", func() (bool, string) { return strings.TrimSpace(running()) == "4", running() })
	jobs := func() []string {
		return strings.Split(c.tool(b, *u, "squeue -h -o '%i %T %S %N %q %Q' | LC_ALL=C sort"), "\n")
	}
	services, queue := c.services(b, *u), jobs()
	terms := &u.Effective.Attachments[7]
	b.ReportMetric(milliseconds(5, func(round int) {
		terms.MaxGPUs, terms.MaxRunningJobs, terms.MaxWalltimeMinutes = 4+round, 9-round, 60*(2+round%2)
		require.NoError(b, c.apply(b, c.plan(b, *u, false)))
	}), "terms-ms")
	restarts, touched := 0, 0
	for name, pid := range c.services(b, *u) {
		if services[name] != pid {
			restarts++
		}
	}
	for _, job := range jobs() {
		if !slices.Contains(queue, job) {
			touched++
		}
	}
	b.ReportMetric(float64(restarts), "terms-restarts")
	b.ReportMetric(float64(touched), "terms-jobs")
	b.ReportMetric(milliseconds(5, func(round int) {
		c.tool(b, *u, fmt.Sprintf("sacctmgr -i modify account where name=%s cluster=%s set grpjobs=%d >/dev/null", terms.ProjectID,
			cluster.Name(u.Effective.Key), 20+round))
	}), "modify-by-hand-ms")
	c.carry(b, *u, false)
	c.onControl(b, *u, "squeue -h -o %i | xargs scancel")
}

// listByHand asks for the lists of an observation.
func (c *company) listByHand(t testing.TB, u plan.Unit) {
	t.Helper()
	c.onControl(t, u, `for l in "qos" "assoc wopl" "user withcoord"; do sacctmgr -n -P list $l; done >/dev/null
scontrol -o show nodes >/dev/null; scontrol show partitions >/dev/null; squeue --all >/dev/null`)
}

// attachByHand attaches a project as an administrator does who has the commands: the accounts of
// users on all hosts at the same time, then Slurm.
func (c *company) attachByHand(t testing.TB, u plan.Unit, name string, users int) {
	t.Helper()
	var g errgroup.Group
	for _, m := range u.Members {
		g.Go(func() error {
			_, err := c.lab.Run(t.Context(), m.Node, "bash", "-ec",
				fmt.Sprintf("for i in $(seq 1 %d); do groupadd -g $((50000+i)) berthhand$i; useradd -M -u $((50000+i)) -g $((50000+i)) "+
					"berthhand$i; done", users))
			return err
		})
	}
	require.NoError(t, g.Wait())
	c.onControl(t, u, fmt.Sprintf(`set -e
cluster=$(basename $etc)
guaranteed=$(sacctmgr -n -P list qos format=name | grep _guaranteed$ | paste -sd,)
sacctmgr -i add qos physics.%[1]s flags=DenyOnLimit preemptmode=requeue
sacctmgr -i modify qos where name=$guaranteed set preempt+=physics.%[1]s
sacctmgr -i add account physics.%[1]s cluster=$cluster parent=root qos=physics.%[1]s defaultqos=physics.%[1]s
sacctmgr -i add user $(seq -f berthhand%%.0f -s, 1 %[2]d) account=physics.%[1]s cluster=$cluster defaultaccount=physics.%[1]s
sed -i 's/ AllowAccounts=/&physics.%[1]s,/; s/ AllowQos=/&physics.%[1]s,/' $etc/slurm.conf
scontrol reconfigure`, name, users))
}

// manifestDefaults is a config with the defaults of a version's manifest.
const manifestDefaults = `{"partitions":[{"name":"main","default":true}],"scheduler":{"interval_seconds":30,"cycle_seconds":60,"batch_delay_seconds":3},
	"jobs":{"default_time_minutes":60,"max_time_minutes":10080,"gpu_defaults":"share","kill_wait_seconds":30,"unkillable_step_seconds":180,"billing":{"cpu":4,"memory_gib":1,"gpu":32}},
	"nodes":{"timeout_seconds":300,"return_to_service":1},
	"priority":{"type":"multifactor","weights":{"age":1000,"fairshare":10000,"job_size":100,"partition":1000,"qos":2000},"decay_half_life_hours":168,"max_age_hours":168},
	"preemption":{"by":"qos","mode":"requeue","exempt_minutes":0},"identity":"managed"}`

// BenchmarkSharedGuarantee measures when 20 projects with 100 queued jobs each run their guaranteed
// share, from the moment that all jobs are queued. Until then another project has every node, with
// jobs of a whole node. The peer is the time that the terms and the rendered configuration promise.
func BenchmarkSharedGuarantee(b *testing.B) {
	const projects, queued, nodes = 20, 100, 10
	for b.Loop() {
		c := &company{stage: newStageOf(b, nodes)}
		c.rt = c.runtime(b)
		var all []int
		for i := range nodes {
			all = append(all, i)
		}
		u := c.unit(manifestDefaults, nil, nil, all...)
		for i := range projects {
			addProject(&u, fmt.Sprintf("p%02d", i), 1, oneGPU)
		}
		greedy := addProject(&u, "greedy", 1, schema.Amount{})
		greedy.Preemption = &schema.Preemption{Mode: schema.PreemptRequeue, GraceSeconds: 2}
		c.side(b, c.plan(b, u, false))
		again := c.plan(b, u, false)
		require.True(b, again.Empty(), "%+v", again.Actions)

		for range nodes {
			c.job(b, u, u.Effective.Users[projects], greedy.ProjectID, "sleep 3600", "--gres=gpu:2", "--ntasks=2", "--nodes=1")
		}
		count := func(what string) int {
			n, err := strconv.Atoi(strings.TrimSpace(c.tool(b, u, "squeue -h "+what+" | wc -l")))
			require.NoError(b, err)
			return n
		}
		eventually(b, "one project has all nodes", func() (bool, string) { return count("-t R") == nodes, "" })
		c.tool(b, u, "scontrol update partitionname=main state=down")
		c.onControl(b, u, fmt.Sprintf(`for p in $(seq -w 0 %d); do for i in $(seq %d); do echo $p; done; done |
xargs -P 4 -I@ setpriv --reuid=430@ --regid=430@ --clear-groups sbatch -Q --chdir=/ -o /dev/null -A physics.p@ --gres=gpu:1 --wrap='sleep 3600'`, projects-1, queued))
		require.Equal(b, projects*queued, count("-t PD"))

		began := time.Now()
		c.tool(b, u, "scontrol update partitionname=main state=up")
		for running := 0; running < projects; time.Sleep(200 * time.Millisecond) {
			running = count("-t R -o %a | grep physics.p | sort -u")
			require.Less(b, time.Since(began), 5*time.Minute, "%d of %d shares run", running, projects)
		}
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "share-ms")
		b.ReportMetric(1000*c.promised(b, u, greedy.ProjectID), "promised-ms")
		b.ReportMetric(float64(nodes-count("-t R -A "+greedy.ProjectID)), "ended")
	}
}

// promised returns the seconds within which a project gets its guaranteed share from another one:
// the exempt time, the grace of the other one, and two cycles of the main scheduler.
func (c *company) promised(t testing.TB, u plan.Unit, other string) float64 {
	t.Helper()
	out := strings.Fields(c.onControl(t, u, fmt.Sprintf(`sed -n 's/^SchedulerParameters=sched_interval=\([0-9]*\),.*/\1/p' $SLURM_CONF
sed -n 's/^PreemptExemptTime=//p' $SLURM_CONF | grep . || echo 00:00:00
sacctmgr -n -P list qos name=%s format=gracetime`, other)))
	require.Len(t, out, 3)
	total := 0.0
	for i, text := range out {
		seconds := 0
		for word := range strings.SplitSeq(text, ":") {
			n, err := strconv.Atoi(word)
			require.NoError(t, err)
			seconds = 60*seconds + n
		}
		if i == 0 {
			seconds *= 2
		}
		total += float64(seconds)
	}
	return total
}
