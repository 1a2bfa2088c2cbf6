package slurm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/accounting"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// sharedExample is a record of a unit with three attached projects and a lent node.
func sharedExample() record {
	rec := example()
	e := &rec.Unit.Effective
	e.Config = json.RawMessage(`{"partitions":[{"name":"main"},{"name":"quick","allow_accounts":["bio.genes","physics.lhc"],"allow_qos":["long"]},{"name":"own","allow_accounts":["physics.none"]}],
		"priority":{"type":"multifactor","weights":{"age":1000,"fairshare":10000,"job_size":100,"partition":1000,"qos":2000},"decay_half_life_hours":168,"max_age_hours":168},
		"qos":[{"name":"long","max_time_minutes":10000},{"name":"vip","priority":5,"users":["alice"]}],
		"scheduler":{"interval_seconds":60},"identity":"managed"}`)
	e.Users = append(e.Users, schema.UnixUser{Name: "carol", UID: 2003})
	e.Attachments = []schema.EffectiveAttachment{
		{ProjectID: "bio.genes", Name: "genes", Users: []string{"alice", "carol"}, Share: 1, Closed: true},
		{
			ProjectID: "physics.lhc", Name: "lhc", Users: []string{"alice"}, Share: 3, Priority: 10,
			Guaranteed: schema.Amount{GPUs: 2, CPUs: 4},
			SubmissionLimits: schema.SubmissionLimits{
				MaxGPUs: 4, MaxCPUs: 16, MaxGPUsPerJob: 2, MaxCPUsPerJob: 8, MaxRunningJobs: 20, MaxSubmittedJobs: 100,
				MaxWalltimeMinutes: 120,
			},
		},
		{
			ProjectID: "physics.ligo", Name: "ligo", Users: []string{"bob"}, Share: 1,
			SubmissionLimits: schema.SubmissionLimits{Queues: []string{"main"}},
			Preemption:       &schema.Preemption{Mode: schema.PreemptCancel, GraceSeconds: 60},
			OnJobs:           &schema.OnJobs{CancelAfterSeconds: 600},
		},
	}
	lent := rec.Unit.Members[1]
	lent.Name, lent.Node, lent.Address, lent.Loan = "worker.dev-gpu-5", "dev-gpu-5", "10.77.0.15",
		&schema.Loan{ProjectID: "physics.lhc", OnJobs: &schema.OnJobs{CancelAfterSeconds: 30}}
	rec.Unit.Members = append(rec.Unit.Members, lent)
	return rec
}

func TestRenderedFilesOfASharedUnit(t *testing.T) {
	const name = "testdata/shared.txtar"
	rec := sharedExample()
	all, err := files(&rec)
	require.NoError(t, err)
	tree, err := rec.accounting()
	require.NoError(t, err)
	var calls []string
	for _, ch := range accounting.Diff(accounting.NewTree(rec.Cluster), tree) {
		args := ch.Args(rec.Cluster)
		require.NoError(t, profile.Profile().Programs["sacctmgr"].Check(args))
		calls = append(calls, "sacctmgr "+strings.Join(args, " "))
	}
	s := profile.Stack{Cluster: rec.Cluster}
	got := &txtar.Archive{Comment: []byte("What a unit with three attached projects and a lent node has besides that of stack.txtar.\n"),
		Files: []txtar.File{
			{Name: "slurm.conf", Data: all[s.Conf()].Data}, {Name: "accounts", Data: all[s.Accounts()].Data},
			{Name: "sacctmgr", Data: []byte(strings.Join(calls, "\n") + "\n")},
		}}
	if *update {
		require.NoError(t, os.WriteFile(name, txtar.Format(got), 0o644))
	}
	want, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, string(want), string(txtar.Format(got)))
	for _, op := range writeOps(all) {
		require.NoError(t, profile.Profile().CheckMake(runtimes.Making{
			Kind: "file", Path: op.Write.Path, Data: op.Write.Data, Mode: op.Write.Mode, Owner: op.Write.Owner, Group: op.Write.Group,
		}), op.Write.Path)
	}
}

// The longest names that documents allow pass berth-host.
func TestLongestProjectNamePassesTheHelper(t *testing.T) {
	long := strings.Repeat("a", 40) + "." + strings.Repeat("b", 40)
	rec := sharedExample()
	rec.Unit.Effective.Attachments[1].ProjectID, rec.Unit.Members[2].Loan.ProjectID = long, long
	all, err := files(&rec)
	require.NoError(t, err)
	for _, op := range writeOps(all) {
		require.NoError(t, profile.Profile().CheckMake(runtimes.Making{
			Kind: "file", Path: op.Write.Path, Data: op.Write.Data, Mode: op.Write.Mode, Owner: op.Write.Owner, Group: op.Write.Group,
		}), op.Write.Path)
	}
	for program, args := range map[string][]string{
		"squeue":   {"--all", profile.QueueFormat, "--account=" + long},
		"scontrol": {"update", "jobid=7", "qos=" + long + cluster.GuaranteedSuffix},
	} {
		require.NoError(t, profile.Profile().Programs[program].Check(args), args)
	}
}

// A config cannot give a project's QoS or account other limits, or hand the QoS to others.
func TestConfigTakesNoNameOfAProject(t *testing.T) {
	for _, name := range []string{"physics.lhc", "Physics.LHC", "physics.lhc" + cluster.GuaranteedSuffix} {
		rec := sharedExample()
		rec.Unit.Effective.Config = json.RawMessage(`{"qos":[{"name":"` + name + `"}]}`)
		_, err := rec.accounting()
		require.ErrorContains(t, err, "has the name of one of the attached project physics.lhc: rename it")
		facts := Backend{}.CheckConfig(&schema.AppVersion{}, rec.Unit.Effective.Config)
		require.Contains(t, facts.Names, schema.ConfigName{Path: "qos[0].name", Sort: schema.ReservedName, Name: "physics.lhc"})
	}
	rec := sharedExample()
	before, err := rec.accounting()
	require.NoError(t, err)
	rec.Unit.Effective.Config = bytes.Replace(rec.Unit.Effective.Config, []byte(`{`), []byte(`{"account":"Physics.LHC",`), 1)
	after, err := rec.accounting()
	require.NoError(t, err)
	require.Equal(t, before, after)
	rec.Unit.Effective.Config = json.RawMessage(
		`{"account":"physics.lhc","partitions":[{"name":"main"},{"name":"none","allow_accounts":["x.y"]}]}`,
	)
	c, err := rec.cluster()
	require.NoError(t, err)
	require.Equal(t, []string{cluster.MembersAccount}, c.Admitted()[1].AllowAccounts, "a partition without a project takes none")
	rec.Unit.Effective.Key.Kind = schema.KindSharedRuntime
	require.Equal(t, cluster.MembersAccount, accountOf(&rec.Unit))
}

// Only an account of a shared unit is that of a project: elsewhere a config chooses the name.
func TestAccountOfAUnitIsNoProjects(t *testing.T) {
	rec, shared := example(), sharedExample()
	require.False(t, rec.isShared())
	require.True(t, shared.isShared())
	shared.Unit.Effective.Attachments = nil
	shared.Unit.Effective.Key.Kind = schema.KindSharedRuntime
	require.True(t, shared.isShared())
}

// Guaranteed shares deepen the queues that slurmctld considers, and let backfill try only as many
// jobs of a user as fill a share. Values in the config take precedence.
func TestGuaranteedSharesSetDepths(t *testing.T) {
	depths := func(config string, shares ...schema.Amount) string {
		rec := sharedExample()
		rec.Unit.Effective.Config, rec.Unit.Effective.Attachments = []byte(config), nil
		for i, share := range shares {
			rec.Unit.Effective.Attachments = append(rec.Unit.Effective.Attachments,
				schema.EffectiveAttachment{ProjectID: fmt.Sprint("a.p", i), Guaranteed: share})
		}
		c, err := rec.cluster()
		require.NoError(t, err)
		_, found, _ := strings.Cut(c.Scheduler().Parameters(0)["SchedulerParameters"], "bf_interval=30")
		return found
	}
	require.Empty(t, depths(`{}`))
	require.Empty(t, depths(`{}`, schema.Amount{}, schema.Amount{}))
	require.Equal(t, ",bf_max_job_assoc=1,bf_max_job_test=500,default_queue_depth=100", depths(`{}`, schema.Amount{GPUs: 1}))
	require.Equal(t, ",bf_max_job_assoc=64,bf_max_job_test=1500,default_queue_depth=300",
		depths(`{}`, schema.Amount{GPUs: 4, CPUs: 33}, schema.Amount{CPUs: 64}, schema.Amount{}))
	require.Equal(t, ",bf_max_job_assoc=1024,bf_max_job_test=1024,default_queue_depth=100", depths(`{}`, schema.Amount{CPUs: 1000}))
	require.Equal(t, ",bf_max_job_assoc=20,bf_max_job_test=20,default_queue_depth=7",
		depths(`{"scheduler":{"interval_seconds":30,"bf_max_job_test":20,"default_queue_depth":7}}`, schema.Amount{CPUs: 64},
			schema.Amount{}))
	require.Equal(t, ",bf_max_job_test=500,bf_max_job_user=9,default_queue_depth=100",
		depths(`{"scheduler":{"interval_seconds":30,"bf_max_job_user":9}}`, schema.Amount{CPUs: 64}))
}

// A queue without a partition gives its project nothing, and delays no other project: the plan says so.
func TestUnknownQueueHoldsUpNobody(t *testing.T) {
	rec := sharedExample()
	before := rec.Unit
	rec.Unit.Effective.Attachments = slices.Clone(before.Effective.Attachments)
	rec.Unit.Effective.Attachments[0].Queues = []string{"main", "fast"}
	_, err := files(&rec)
	require.NoError(t, err)
	note := fmt.Sprint(cluster.Rules{}.Impact(plan.Configure, "", &before, &rec.Unit).Notes)
	require.Contains(t, note, "which is no partition: there is main, quick, own")
	require.Contains(t, note, "may use the queue fast")
	require.NotContains(t, fmt.Sprint(cluster.Rules{}.Impact(plan.Configure, "", &rec.Unit, &rec.Unit).Notes), "fast")
}

// A guaranteed share beside preemption by partition preempts nobody, and the plan says so.
func TestGuaranteeWithoutPreemptionHoldsUpNobody(t *testing.T) {
	rec := sharedExample()
	before := rec.Unit
	rec.Unit.Effective.Config = json.RawMessage(`{"preemption":{"by":"partition","mode":"requeue"}}`)
	_, err := files(&rec)
	require.NoError(t, err)
	require.Contains(t, fmt.Sprint(cluster.Rules{}.Impact(plan.Configure, "", &before, &rec.Unit).Notes),
		"the guaranteed share of project physics.lhc preempts nobody, as config.preemption.by is partition")
}

// The impact of a detachment has each job in one rule, by the terms of the project that leaves.
func TestImpactOfADetachment(t *testing.T) {
	before, after := sharedExample().Unit, sharedExample().Unit
	after.Effective.Attachments = after.Effective.Attachments[:2]
	after.Effective.Users = after.Effective.Users[:1] // bob and carol go
	i := cluster.Rules{}.Impact(plan.Configure, "", &before, &after)
	require.Equal(t, []plan.JobRule{
		{Accounts: []string{"physics.ligo"}, CancelAfter: 600, CancelsQueued: true}, {Users: []string{"carol"}, CancelsQueued: true},
	}, i.Jobs)
	require.True(t, i.EndsJobs)

	// A guarantee that is taken away ends no job.
	after = sharedExample().Unit
	after.Effective.OnJobs = &schema.OnJobs{CancelAfterSeconds: 1}
	after.Effective.Attachments[1].Guaranteed = schema.Amount{}
	i = cluster.Rules{}.Impact(plan.Configure, "", &before, &after)
	require.Equal(t, []plan.JobRule{{QoS: []string{"physics.lhc_guaranteed"}}}, i.Jobs)

	// New terms change accounting only.
	after = sharedExample().Unit
	after.Effective.Attachments[1].MaxGPUs, after.Effective.Attachments[1].Priority, after.Effective.Attachments[1].Guaranteed.GPUs = 3, 7,
		1
	i = cluster.Rules{}.Impact(plan.Configure, "", &before, &after)
	require.Empty(t, i.Jobs)
	require.Empty(t, i.Restarts)
	require.False(t, i.Reconfigure)
	require.NotEmpty(t, i.Differences)

	i = cluster.Rules{}.Impact(plan.Leave, "worker.dev-gpu-5", &before, &before)
	require.Equal(t, []plan.JobRule{{Nodes: []string{"dev-gpu-5"}, CancelAfter: 30}}, i.Jobs)
}

// A change of terms says which limits it changes, of the account of the project and of the QoS of its
// guaranteed share, and changes no others. It ends no job.
func TestImpactOfTerms(t *testing.T) {
	before := sharedExample().Unit
	change := func(set func(e *schema.EffectiveUnit)) plan.Impact {
		after := sharedExample().Unit
		set(&after.Effective)
		i := cluster.Rules{}.Impact(plan.Configure, "", &before, &after)
		require.Empty(t, i.Jobs)
		require.False(t, i.EndsJobs)
		return i
	}
	per := func(gpus, cpus int) map[string]int {
		return map[string]int{plan.ResourceGPUs: gpus, plan.ResourceCPUs: cpus}
	}
	all := func(gpus, cpus, jobs int) map[string]int {
		return map[string]int{plan.ResourceGPUs: gpus, plan.ResourceCPUs: cpus, plan.ResourceJobs: jobs}
	}
	limits := func(l plan.JobLimits, minutes int) plan.JobLimits { l.PerJob[plan.ResourceMinutes] = minutes; return l }
	was := limits(plan.JobLimits{Without: []string{"own"}, PerJob: per(2, 8), Together: all(4, 16, 20)}, 120)
	share := plan.JobLimits{PerJob: per(2, 4), Together: per(2, 4)}

	i := change(func(e *schema.EffectiveUnit) { e.Attachments[1].MaxGPUs, e.Attachments[1].MaxWalltimeMinutes = 1, 60 })
	now := limits(plan.JobLimits{Without: []string{"own"}, PerJob: per(1, 8), Together: all(1, 16, 20)}, 60)
	require.Equal(t, []plan.JobTerms{{Account: "physics.lhc", Before: was, After: now},
		{QoS: "physics.lhc_guaranteed", Before: share, After: share}}, i.Terms)
	require.Empty(t, i.Preempts)

	i = change(func(e *schema.EffectiveUnit) { e.Attachments[2].Queues = []string{"own"} })
	require.Equal(t, []plan.JobTerms{{Account: "physics.ligo",
		Before: plan.JobLimits{Without: []string{"own", "quick"}, PerJob: map[string]int{}, Together: map[string]int{}},
		After:  plan.JobLimits{Without: []string{"main", "own", "quick"}, PerJob: map[string]int{}, Together: map[string]int{}}}}, i.Terms)

	for _, set := range []func(e *schema.EffectiveUnit){
		func(e *schema.EffectiveUnit) {
			e.Attachments[1].Share, e.Attachments[1].Priority, e.Attachments[1].MaxSubmittedJobs = 9, 9, 1
		},
		func(e *schema.EffectiveUnit) { e.Attachments[1].Closed = true },
		func(e *schema.EffectiveUnit) { e.Users = append(e.Users, schema.UnixUser{Name: "dave", UID: 2004}) },
		func(e *schema.EffectiveUnit) { // a new partition has no jobs
			e.Config = json.RawMessage(strings.Replace(string(e.Config), `{"name":"main"}`,
				`{"name":"main"},{"name":"new","allow_accounts":["physics.none"]}`, 1))
		},
	} {
		i = change(set)
		require.Empty(t, i.Terms)
		require.Empty(t, i.Preempts)
	}
}

// A greater guaranteed share names the QoS whose running jobs may end for it, and how they end.
func TestImpactOfGuaranteedShares(t *testing.T) {
	before, after := sharedExample().Unit, sharedExample().Unit
	configure := func() []plan.JobPreemption {
		return cluster.Rules{}.Impact(plan.Configure, "", &before, &after).Preempts
	}
	after.Effective.Attachments[1].Guaranteed.GPUs = 3
	requeued := plan.JobPreemption{QoS: []string{"bio.genes", "physics.lhc", "long", "vip"}, Mode: schema.PreemptRequeue,
		For: []string{"physics.lhc"}}
	cancelled := plan.JobPreemption{QoS: []string{"physics.ligo"}, Mode: schema.PreemptCancel, GraceSeconds: 60,
		For: []string{"physics.lhc"}}
	require.ElementsMatch(t, []plan.JobPreemption{requeued, cancelled}, configure())

	// A smaller share, or none, lets no other job end.
	after.Effective.Attachments[1].Guaranteed = schema.Amount{GPUs: 1, CPUs: 4}
	require.Empty(t, configure())
	after.Effective.Attachments[1].Guaranteed = schema.Amount{}
	require.Empty(t, configure())

	// Another way to end concerns the jobs of that project.
	after = sharedExample().Unit
	after.Effective.Attachments[2].Preemption = nil
	require.Equal(t, []plan.JobPreemption{{QoS: []string{"physics.ligo"}, Mode: schema.PreemptRequeue, For: []string{"physics.lhc"}}},
		configure())

	after.Effective.Config = json.RawMessage(`{"preemption":{"by":"partition","mode":"requeue"}}`)
	require.Empty(t, configure())
}

// ListKind returns the kind of list that a call of Slurm's tools prints, such as "sacctmgr list qos", and "" for a
// call that lists nothing.
func ListKind(run *runtimes.Run) string {
	line := run.Program + " " + strings.Join(slices.DeleteFunc(slices.Clone(run.Args),
		func(a string) bool { return strings.HasPrefix(a, "-") }), " ")
	for _, list := range []string{`squeue`, `sinfo`, `sacct`, `sacctmgr list \w+`, `scontrol show .*`} {
		if found := regexp.MustCompile(`^` + list + `\b`).FindString(line); found != "" {
			return found
		}
	}
	return ""
}

// shareAmong returns the unit of c with so many attached projects, each with a guaranteed share and
// so many users.
func (c *fakeCluster) shareAmong(projects, users int) plan.Unit {
	u := c.unit
	u.Effective.Users, u.Effective.Attachments = nil, nil
	for i := range projects {
		a := schema.EffectiveAttachment{ProjectID: fmt.Sprintf("physics.p%02d", i), Name: fmt.Sprintf("p%02d", i), Share: 1 + i,
			Guaranteed: schema.Amount{GPUs: 1, CPUs: 2}}
		for j := range users {
			user := schema.UnixUser{Name: fmt.Sprintf("user%02d-%03d", i, j), UID: 10_000 + 1000*i + j}
			u.Effective.Users, a.Users = append(u.Effective.Users, user), append(a.Users, user.Name)
		}
		u.Effective.Attachments = append(u.Effective.Attachments, a)
	}
	return u
}

// A reconcile of 50 attachments without a change writes nothing, and asks for each list once.
func TestReconcileWithoutAChangeAsksOnceForEachList(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	u := c.shareAmong(50, 3)
	require.NoError(t, c.apply(t, plan.Configure, u))
	lists, writes := map[string]int{}, 0
	for _, h := range []*fakeHost{c.ctl, c.wk} {
		h.before = func(op runtimes.Op) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			if op.Run != nil {
				lists[ListKind(op.Run)]++
			}
			isRead := op.Read != nil || op.Stat != nil || op.List != nil || op.Service != nil && op.Service.Verb == "state"
			if op.Run != nil {
				reads := profile.Profile().Programs[op.Run.Program].Reads
				isRead = reads != nil && reads(op.Run.Args)
			}
			if !isRead {
				writes++
			}
			return nil
		}
	}
	o := c.observe(t)
	require.Empty(t, o.Drift)
	p := plan.Make(plan.Input{Key: u.Effective.Key, Observed: o, Rules: c.rt, After: &u.Effective, Members: u.Members})
	require.True(t, p.Empty(), "%+v", p.Actions)
	require.Zero(t, writes)
	delete(lists, "")
	for _, kind := range []string{"sacctmgr list qos", "sacctmgr list assoc", "sacctmgr list user", "scontrol show partitions", "sinfo",
		"squeue"} {
		require.Equal(t, 1, lists[kind], kind)
	}
	for kind, n := range lists {
		require.Equal(t, 1, n, kind)
	}
}

// The attachment of a project with 500 users takes as many requests to each host, and calls of
// sacctmgr, as that of one with 5.
func TestAttachingManyUsersTakesOneRequestForEachHost(t *testing.T) {
	t.Parallel()
	attach := func(users int) (requests, calls map[string]int) {
		c := newCluster(t)
		require.NoError(t, c.apply(t, plan.Configure, c.shareAmong(1, 1)))
		requests, calls = map[string]int{}, map[string]int{}
		for _, h := range []*fakeHost{c.ctl, c.wk} {
			h.request = func(ops []runtimes.Op) error {
				c.mu.Lock()
				defer c.mu.Unlock()
				if slices.ContainsFunc(ops, func(op runtimes.Op) bool { return op.User != nil }) {
					requests[h.name]++
				}
				for _, op := range ops {
					if op.Run != nil && op.Run.Program == "sacctmgr" {
						calls[strings.Join(op.Run.Args[1:3], " ")]++
					}
				}
				return nil
			}
		}
		u := c.shareAmong(2, users)
		require.NoError(t, c.apply(t, plan.Configure, u))
		for _, h := range []*fakeHost{c.ctl, c.wk} {
			require.Len(t, h.users, 2*users)
			require.Equal(t, 1, requests[h.name], h.name)
		}
		require.Len(t, c.people(), 2*users)
		return requests, calls
	}
	_, few := attach(5)
	_, many := attach(500)
	require.Equal(t, few, many)
	require.Equal(t, map[string]int{"-P list": 6, "add qos": 2, "modify qos": 1, "add account": 1, "add user": 2}, many,
		"a QoS with and one without its guarantee, what others preempt, the account, and new users of both projects")
}

// A configure that ends at any operation and is repeated brings the same accounting: a project
// joins, its terms change, and it leaves.
func TestConfigureOfASharedUnitSurvivesACrashAtEachStep(t *testing.T) {
	t.Parallel()
	attach := func(c *fakeCluster, attachments ...schema.EffectiveAttachment) plan.Unit {
		u := c.unit
		u.Effective.Users = []schema.UnixUser{{Name: "alice", UID: 2001}, {Name: "bob", UID: 2002}}[:max(1, len(attachments))]
		u.Effective.Attachments = attachments
		return u
	}
	one := schema.EffectiveAttachment{ProjectID: "bio.genes", Name: "genes", Users: []string{"alice"}, Share: 1}
	two := schema.EffectiveAttachment{ProjectID: "physics.lhc", Name: "lhc", Users: []string{"alice", "bob"}, Share: 1,
		Guaranteed: schema.Amount{GPUs: 1}}
	narrow := two
	narrow.MaxGPUs, narrow.Closed, narrow.Guaranteed = 1, true, schema.Amount{}
	for name, change := range map[string][2][]schema.EffectiveAttachment{
		"first": {nil, {one}}, "second": {{one}, {one, two}}, "terms": {{one, two}, {one, narrow}}, "detach": {{one, two}, {one}},
		"last": {{one}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			crashed := true
			for n := 1; crashed; n++ {
				c := newCluster(t)
				before, after := attach(c, change[0]...), attach(c, change[1]...)
				converge := func(u plan.Unit) {
					for range 2 {
						require.NoError(t, c.apply(t, plan.Configure, u))
					}
				}
				converge(before)
				left := n
				crashed = false
				c.ctl.before = func(op runtimes.Op) error {
					if left--; left == 0 {
						crashed = true
						return errCrash
					}
					return nil
				}
				patient := c.rt
				c.rt = c.runtime(10 * time.Millisecond) // with a short timeout: the crash prevented the awaited operation
				_ = c.apply(t, plan.Configure, after)   // it may do without the operation
				c.rt, c.ctl.before = patient, nil
				converge(after)
				rec := c.record(t)
				want, err := rec.accounting()
				require.NoError(t, err)
				require.Empty(t, accounting.Diff(c.db.Tree, want), "crash at operation %d", n)
				require.Empty(t, rec.Closing)
				require.Empty(t, rec.Detaching)
				require.Empty(t, c.observe(t).Drift)
			}
		})
	}
}
