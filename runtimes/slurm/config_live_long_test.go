//go:build long

package slurm_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
	"berth/runtimes/slurm/slurmtest"
)

// Each parameter that the table calls tried is changed on a live cluster and taken over as
// its class says: slurmctld has the new value, and a running job goes on.
func TestLongParametersTakeEffect(t *testing.T) {
	t.Parallel()
	c, u := newCompanyOn(bareStage(t), t,
		`{"partitions":[{"name":"main","default":true}],"scheduler":{"interval_seconds":30},"preemption":{"by":"partition","mode":"requeue"},
		"priority":{"type":"multifactor","weights":{"age":1},"decay_half_life_hours":168,"max_age_hours":168}}`, 0)
	version := string(c.version)
	job := c.submit(t, u, alice, "sleep 600", 1)
	running := c.await(t, u, job, slurmtest.Running)

	// PriorityType comes last of its class: with priority/basic, Slurm shows no other
	// parameter of the priority.
	type step struct {
		class profile.Activation
		last  bool
	}
	changes := map[step][]profile.Parameter{}
	for _, p := range (profile.Stack{}).SlurmConf() {
		if class := p.Classes.On(version); other[p.Name] != [2]string{} && class != profile.Unsupported {
			s := step{class, p.Name == "PriorityType"}
			changes[s] = append(changes[s], p)
		}
	}
	var failed []string
	for i := range 2 * int(profile.RestartAll) {
		s := step{profile.Reconfigure + profile.Activation(i/2), i%2 == 1}
		class := s.class
		if len(changes[s]) == 0 {
			continue
		}
		c.edit(t, u, changes[s])
		c.takeOver(t, u, class)
		shown := c.tool(t, u, "scontrol show config")
		for _, p := range changes[s] {
			want := strings.ReplaceAll(other[p.Name][1], " ", "")
			found := slices.ContainsFunc(strings.Split(shown, "\n"), func(line string) bool {
				line = strings.Replace(strings.Join(strings.Fields(line), ""), "[0]", "", 1) // of a list in 24.11
				return strings.EqualFold(line, want) || strings.EqualFold(line, strings.ReplaceAll(want, "sec", "s"))
			})
			if !found {
				failed = append(failed, fmt.Sprintf("%s (%s): want %q; shown: %q", p.Name, class, want,
					regexp.MustCompile(`(?mi)^`+p.Name+`\s.*$`).FindString(shown)))
			}
		}
		require.Equal(t, running, c.await(t, u, job, slurmtest.Running), "after %s", class)
		id := c.submit(t, u, alice, "true", 0)
		c.await(t, u, id, slurmtest.Completed)
	}
	require.Empty(t, failed, strings.Join(failed, "\n"))
	c.onControl(t, u, "rm $etc/topology.conf")
	for _, p := range (profile.Stack{}).SlurmConf() {
		_, tried := other[p.Name]
		tried = tried && p.Classes.On(version) != profile.Unsupported
		if p.Name == profile.NodeName || p.Name == profile.PartitionName {
			tried = true // by the tests of joins, leaves and partitions
		}
		require.Equal(t, tried, strings.Contains(p.Tried, version[:len("22.05")]), "the table says %q of %s", p.Tried, p.Name)
	}
}

// A node that a person set DOWN stays so, and one that slurmctld set DOWN for a reboot
// returns once its slurmd has its shape.
func TestLongDownNodes(t *testing.T) {
	t.Parallel()
	c := &company{stage: newStage(t)}
	c.rt = c.runtime(t)
	u := c.unit(fmt.Sprintf(siteConfig, c.workers[0].Key.Name), nil, nil, 0)
	c.carry(t, u, false)
	down := func(reason string) {
		c.tool(t, u, "scontrol update nodename="+c.workers[0].Key.Name+" state=down reason='"+reason+"'")
	}
	down("bad DIMM")
	p := c.plan(t, u, false)
	require.True(t, p.Empty(), "%+v", p.Actions)
	require.Contains(t, c.tool(t, u, "scontrol -o show node "+c.workers[0].Key.Name), "State=DOWN")
	// Berth creates a partition again that a person deleted.
	c.tool(t, u, "scontrol delete partitionname=urgent")
	p = c.plan(t, u, false)
	require.Len(t, p.Actions, 1)
	require.Contains(t, fmt.Sprint(c.observe(t, u).Drift), "partition urgent was deleted by hand")
	c.carry(t, u, false)
	require.Contains(t, c.tool(t, u, "scontrol -o show partition urgent"), " State=UP ")

	// A node that a leave drained, and whose host then died, must not stay drained either.
	for _, reason := range []string{"Node unexpectedly rebooted", "berth:leave-1"} {
		down(reason)
		c.carry(t, u, false)
		c.idle(t, u, 0)
	}
}

// other has, for each parameter that TestLongParametersTakeEffect changes, another value and
// what `scontrol show config` has then, by the key there if it differs.
var other = map[string][2]string{
	"SlurmctldTimeout":      {"40", "SlurmctldTimeout = 40 sec"},
	"SlurmdTimeout":         {"333", "SlurmdTimeout = 333 sec"},
	"KillWait":              {"44", "KillWait = 44 sec"},
	"UnkillableStepTimeout": {"190", "UnkillableStepTimeout = 190 sec"},
	"ReturnToService":       {"0", "ReturnToService = 0"},
	"HealthCheckProgram":    {"/usr/local/libexec/berth-slurm/check", "HealthCheckProgram = /usr/local/libexec/berth-slurm/check"},
	"HealthCheckInterval":   {"600", "HealthCheckInterval = 600 sec"},
	"HealthCheckNodeState":  {"IDLE", "HealthCheckNodeState = IDLE"},
	"Prolog":                {"/bin/true", "Prolog = /bin/true"},
	"Epilog":                {"/bin/true", "Epilog = /bin/true"},
	"PrologEpilogTimeout":   {"77", "PrologEpilogTimeout = 77"},
	"MailProg":              {"/bin/false", "MailProg = /bin/false"},
	"DefMemPerCPU":          {"123", "DefMemPerCPU = 123"},
	"DefMemPerGPU":          {"321", "JobDefaults = DefCpuPerGPU=1,DefMemPerGPU=321"},
	"DefCpuPerGPU":          {"1", "JobDefaults = DefCpuPerGPU=1,DefMemPerGPU=321"},
	"SchedulerParameters": {"sched_interval=2,batch_sched_delay=1,bf_interval=31,bf_continue,bf_window=2880,bf_resolution=120",
		"SchedulerParameters = sched_interval=2,batch_sched_delay=1,bf_interval=31,bf_continue,bf_window=2880,bf_resolution=120"},
	"PriorityWeightAge":        {"11", "PriorityWeightAge = 11"},
	"PriorityWeightFairshare":  {"12", "PriorityWeightFairShare = 12"},
	"PriorityWeightJobSize":    {"13", "PriorityWeightJobSize = 13"},
	"PriorityWeightPartition":  {"14", "PriorityWeightPartition = 14"},
	"PriorityWeightQOS":        {"15", "PriorityWeightQOS = 15"},
	"PriorityDecayHalfLife":    {"48:00:00", "PriorityDecayHalfLife = 2-00:00:00"},
	"PriorityMaxAge":           {"24:00:00", "PriorityMaxAge = 1-00:00:00"},
	"PreemptMode":              {"CANCEL", "PreemptMode = CANCEL"},
	"PreemptExemptTime":        {"00:10:00", "PreemptExemptTime = 00:10:00"},
	"PrivateData":              {"jobs,usage", "PrivateData = jobs,usage"},
	"AccountingStoreFlags":     {"job_comment,job_env", "AccountingStoreFlags = job_comment,job_env"},
	"EnforcePartLimits":        {"ANY", "EnforcePartLimits = ANY"},
	"BatchStartTimeout":        {"22", "BatchStartTimeout = 22 sec"},
	"CompleteWait":             {"2", "CompleteWait = 2 sec"},
	"DebugFlags":               {"Backfill,Steps", "DebugFlags = Backfill,Steps"},
	"DependencyParameters":     {"kill_invalid_depend", "DependencyParameters = kill_invalid_depend"},
	"DisableRootJobs":          {"YES", "DisableRootJobs = Yes"},
	"FairShareDampeningFactor": {"3", "FairShareDampeningFactor = 3"},
	"GroupUpdateForce":         {"0", "GroupUpdateForce = 0"},
	"GroupUpdateTime":          {"700", "GroupUpdateTime = 700 sec"},
	"InactiveLimit":            {"3600", "InactiveLimit = 3600 sec"},
	"JobAcctGatherFrequency":   {"task=33", "JobAcctGatherFrequency = task=33"},
	"JobFileAppend":            {"1", "JobFileAppend = 1"},
	"JobRequeue":               {"0", "JobRequeue = 0"},
	"KillOnBadExit":            {"1", "KillOnBadExit = 1"},
	"LaunchParameters":         {"use_interactive_step", "LaunchParameters = use_interactive_step"},
	"MaxArraySize":             {"2002", "MaxArraySize = 2002"},
	"MaxDBDMsgs":               {"20000", "MaxDBDMsgs = 20000"},
	"MaxJobCount":              {"20002", "MaxJobCount = 20002"},
	"MaxMemPerNode":            {"3500", "MaxMemPerNode = 3500"},
	"MaxStepCount":             {"30000", "MaxStepCount = 30000"},
	"MaxTasksPerNode":          {"100", "MaxTasksPerNode = 100"},
	"MessageTimeout":           {"20", "MessageTimeout = 20 sec"},
	"MinJobAge":                {"200", "MinJobAge = 200 sec"},
	"OverTimeLimit":            {"5", "OverTimeLimit = 5 min"},
	"PreemptParameters":        {"youngest_first", "PreemptParameters = youngest_first"},
	"PriorityCalcPeriod":       {"4", "PriorityCalcPeriod = 00:04:00"},
	"PriorityFavorSmall":       {"YES", "PriorityFavorSmall = Yes"},
	"PriorityFlags":            {"MAX_TRES", "PriorityFlags = MAX_TRES"},
	"PriorityUsageResetPeriod": {"MONTHLY", "PriorityUsageResetPeriod = MONTHLY"},
	"PropagatePrioProcess":     {"1", "PropagatePrioProcess = 1"},
	"RequeueExit":              {"99", "RequeueExit = 99"},
	"RequeueExitHold":          {"100", "RequeueExitHold = 100"},
	"ResvOverRun":              {"3", "ResvOverRun = 3 min"},
	"SlurmctldDebug":           {"verbose", "SlurmctldDebug = verbose"},
	"SlurmdDebug":              {"verbose", "SlurmdDebug = verbose"},
	"SrunPortRange":            {"60001-63000", "SrunPortRange = 60001-63000"},
	"TCPTimeout":               {"3", "TCPTimeout = 3 sec"},
	"WaitTime":                 {"30", "WaitTime = 30 sec"},
	"MaxBatchRequeue":          {"7", "MaxBatchRequeue = 7"},
	"PriorityType":             {"priority/basic", "PriorityType = priority/basic"},
	"PreemptType":              {"preempt/qos", "PreemptType = preempt/qos"},
	"TopologyPlugin":           {"topology/tree", "TopologyPlugin = topology/tree"},
	"AccountingStorageEnforce": {"associations,limits,qos", "AccountingStorageEnforce = associations,limits,qos"},
	"ProctrackType":            {"proctrack/linuxproc", "ProctrackType = proctrack/linuxproc"},
	"TaskPlugin":               {"task/affinity", "TaskPlugin = task/affinity"},
	"JobAcctGatherType":        {"jobacct_gather/linux", "JobAcctGatherType = jobacct_gather/linux"},
	"PrologFlags":              {"Alloc", "PrologFlags = Alloc"},
	"SelectTypeParameters":     {"CR_CPU_Memory", "SelectTypeParameters = CR_CPU_MEMORY"},
	"TreeWidth":                {"50", "TreeWidth = 50"},
}

// edit writes other values of parameters to slurm.conf.
func (c *company) edit(t *testing.T, u plan.Unit, list []profile.Parameter) {
	t.Helper()
	conf := "/etc/slurm/" + cluster.Name(u.Effective.Key) + "/slurm.conf"
	data, err := c.lab.Run(t.Context(), c.control.Key.Name, "cat", conf)
	require.NoError(t, err)
	for _, p := range list {
		data = regexp.MustCompile(`(?mi)^`+p.Name+`=.*\n`).ReplaceAllString(data, "")
		data += p.Name + "=" + other[p.Name][0] + "\n"
		if p.Name == "TopologyPlugin" {
			_, err = c.lab.Run(t.Context(), c.control.Key.Name, "sh", "-c",
				"echo SwitchName=a Nodes="+c.workers[0].Key.Name+" > "+strings.Replace(conf, "slurm.conf", "topology.conf", 1))
			require.NoError(t, err)
		}
	}
	_, err = c.lab.Run(t.Context(), c.control.Key.Name, "sh", "-c", "cat >"+conf+" <<'EOF'\n"+data+"EOF")
	require.NoError(t, err)
}

// takeOver makes the daemons take over slurm.conf, in the order of the runtime.
func (c *company) takeOver(t *testing.T, u plan.Unit, class profile.Activation) {
	t.Helper()
	restart := func(m plan.Member, name string, params map[string]string) {
		service := runtimes.Service{Name: name, Unit: cluster.Name(u.Effective.Key), Verb: "restart", Params: params}
		_, err := c.hosts.Host(m).Do(t.Context(), runtimes.Stamp{Epoch: 1}, runtimes.Op{Service: &service})
		require.NoError(t, err)
	}
	if class >= profile.RestartController {
		restart(u.Members[0], profile.Slurmctld, nil)
	}
	registered := func() {
		t.Helper()
		eventually(t, "node is registered", func() (bool, string) {
			out, err := c.lab.Run(t.Context(), c.control.Key.Name, "sh", "-c",
				"SLURM_CONF=/etc/slurm/"+cluster.Name(u.Effective.Key)+"/slurm.conf sinfo -h -N -o '%T %v'")
			return err == nil && !strings.ContainsAny(out, "*") && strings.Contains(out, "."), out
		})
	}
	registered()
	c.tool(t, u, "scontrol reconfigure")
	registered()
	if class < profile.RestartAll {
		return
	}
	server := u.Members[0].Address + ":" + strings.TrimSpace(c.tool(t, u, "sh -c 'sed -n s/^SlurmctldPort=//p $SLURM_CONF'"))
	for _, m := range workersOf(u).Members {
		restart(m, profile.Slurmd, map[string]string{profile.ParamServer: server, profile.ParamNode: m.Node,
			profile.ParamDevices: "/dev/nvidia0,/dev/nvidia1"})
	}
	registered()
}
