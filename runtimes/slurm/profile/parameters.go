package profile

import (
	"slices"
	"strings"
)

// Parameter is a key of a configuration file: a row of the table that the runtime renders
// from, that the helper checks files with, and that says how daemons take over a change.
type Parameter struct {
	Name    string
	Value   string  // the only value that Berth writes; empty: Allowed says which
	Allowed Values  // empty: Berth never writes the parameter, and a person may have
	Field   string  // of an instance's config that sets it; empty: Berth sets it
	Classes Classes // what makes daemons take over another value, by series
	Tried   string  // the series of Slurm with which a test changed it on a live cluster
	Meaning string
}

// Activation is how daemons take over a changed file. A greater one includes the effect of
// a lesser one.
type Activation int

// Unsupported parameters end slurmctld of that series. None is for changed comments.
// Reconfigure is `scontrol reconfigure`. RestartController restarts slurmctld, RestartAll
// also the slurmd of each worker. Jobs go on through all of them.
const (
	Unsupported Activation = iota - 1
	None
	Reconfigure
	RestartController
	RestartAll
)

// String returns the activation as documentation has it.
func (a Activation) String() string {
	return []string{"not known", "none", "reconfigure", "restart of slurmctld", "restart of all"}[a+1]
}

// Classes has the activation of a parameter for each of Series.
type Classes [3]Activation

// Series returns the series of Slurm that the table has, oldest first.
func Series() []string { return []string{"22.05", "24.11", "26.05"} }

// On returns the activation on a version such as 22.05.8. An unknown version is treated
// as the oldest one, whose restarts are right for all.
func (c Classes) On(version string) Activation {
	i := slices.IndexFunc(Series(), func(s string) bool { return version == s || strings.HasPrefix(version, s+".") })
	return c[max(i, 0)]
}

// The classes of most parameters. Those that end in OrReconfigure need a restart on 22.05. On later series a reconfigure is
// enough, as it makes the daemons start again.
var (
	reconfigure             = Classes{Reconfigure, Reconfigure, Reconfigure}
	controller              = Classes{RestartController, RestartController, RestartController}
	everywhere              = Classes{RestartAll, RestartAll, RestartAll}
	controllerOrReconfigure = Classes{RestartController, Reconfigure, Reconfigure}
	everywhereOrReconfigure = Classes{RestartAll, Reconfigure, Reconfigure}
)

// The forms of names that people give. None has a comma, an equals sign, a bracket or a space, which
// the parsers of Slurm give a meaning, or begins with a dash.
const (
	// NameForm is that of partitions, nodes, GPU types, QoS and accounts.
	NameForm = `[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,62}[A-Za-z0-9])?`
	// userForm is that of users: names of POSIX that no program reads as a number.
	userForm = `[0-9]{0,31}[A-Za-z][-A-Za-z0-9_.]{0,31}`
)

const (
	addressForm  = `[A-Za-z0-9]([A-Za-z0-9.:-]{0,252})`
	intervalForm = `[0-9]{1,6}`
	memoryForm   = `[1-9][0-9]{0,8}`
	nodeListForm = NameForm + `(,` + NameForm + `)*`
	recordForm   = `[A-Za-z0-9_][-A-Za-z0-9_.]{0,127}` // of a user, an account or a QoS in accounting
	programForm  = `[a-z0-9][-a-z0-9_.]{0,39}`
	accountForm  = `[a-z0-9][-a-z0-9_.]{0,127}` // of an account or a QoS: <tenant>.<project>_guaranteed has up to 92 characters
	accountsForm = accountForm + `(,` + accountForm + `)*`
	gpuForm      = `gpu:` + NameForm + `:[1-9][0-9]{0,3}`
	lenderForm   = `from_[a-z0-9][-a-z0-9.]{0,80}` // the project that lends the node
	nodeForm     = NameForm + ` NodeAddr=` + addressForm + ` CPUs=` + memoryForm + `( Sockets=` + memoryForm + ` CoresPerSocket=` +
		memoryForm + ` ThreadsPerCore=` + memoryForm + `)? RealMemory=` + memoryForm +
		`( Gres=` + gpuForm + `(,` + gpuForm + `){0,7})? Feature=` + NameForm + `(,` + lenderForm + `)?(,` + NameForm + `){0,15}`
	billingForm = `CPU=[0-9]{1,7},Mem=[0-9]{1,7}G,GRES/gpu=[0-9]{1,7}`
	lineForm    = NameForm + `( Nodes=(ALL|` + nodeListForm +
		`))? State=(UP|INACTIVE)( DefaultTime=[1-9][0-9]{0,8})? MaxTime=(UNLIMITED|[1-9][0-9]{0,8})( Default=YES)?` +
		`( PriorityTier=[0-9]{1,5})?( AllowAccounts=` + accountsForm + `)?( AllowQos=` + accountsForm + `)?( QOS=` + accountForm +
		`)?( PreemptMode=(OFF|REQUEUE|CANCEL))?` +
		`( TRESBillingWeights=` + billingForm + `)?( DefMemPerCPU=` + memoryForm + `)?( DefMemPerGPU=` + memoryForm + ` DefCpuPerGPU=` +
		memoryForm + `)?`
	schedulerForm = `sched_interval=` + intervalForm + `,batch_sched_delay=` + intervalForm + `,bf_interval=` + intervalForm +
		`(,bf_continue,bf_window=` + intervalForm + `,bf_resolution=` + intervalForm + `)?` +
		`(,(bf_max_job_assoc|bf_max_job_part|bf_max_job_test|bf_max_job_user|default_queue_depth|max_rpc_cnt)=` + intervalForm + `)*`
)

// The parameters with any number of lines.
const (
	NodeName      = "NodeName"
	PartitionName = "PartitionName"
)

// NoNode is the node of a cluster without workers, as slurmctld does not start without any.
// No tool of Slurm shows a node in state FUTURE.
const NoNode = "none State=FUTURE"

// slurmConf is the table of slurm.conf, in the order of the file: nodes and partitions
// last. {cluster} in a value is the name of the cluster. The classes of 22.05 are those of
// its slurm.conf(5).
var slurmConf = slices.Concat([]Parameter{
	{"ClusterName", "{cluster}", Values{}, "", controller, "", "name of the cluster"},
	{"SlurmctldHost", "", form(`[A-Za-z0-9][-A-Za-z0-9_.]{0,252}\(` + addressForm + `\)`), "", controller, "",
		"host and address of slurmctld"},
	{"SlurmctldPort", "", between(1000, 65535), "", controller, "", "port of slurmctld, chosen by Berth"},
	{"SlurmdPort", "6818", Values{}, "", everywhere, "", "port of each slurmd"},
	{"SlurmUser", SlurmUser, Values{}, "", controller, "", "account of slurmctld"},
	{"AuthType", "auth/munge", Values{}, "", everywhere, "", "daemons trust each other by the munge key"},
	{"AuthInfo", "socket=/run/munge-{cluster}/munge.socket.2", Values{}, "", everywhere, "", "socket of the cluster's munged"},
	{"CredType", "cred/munge", Values{}, "", everywhere, "", "job credentials by munge"},
	{"SlurmctldParameters", "enable_configless", Values{}, "", controller, "", "workers fetch their configuration"},
	{"TreeWidth", "65533", Values{}, "", everywhere, "22.05 24.11 26.05", "no slurmd forwards to a node that it may not know yet"},
	{"StateSaveLocation", StateDir + "/{cluster}/state", Values{}, "", controller, "", "saved state of jobs and nodes"},
	{"FirstJobId", "", between(1, 1<<31), "", reconfigure, "", "above the ids of lost jobs"},
	{"SlurmctldPidFile", "/run/slurm-{cluster}/slurmctld.pid", Values{}, "", reconfigure, "", "pid file of slurmctld"},
	{"SlurmctldLogFile", LogDir + "/{cluster}/slurmctld.log", Values{}, "", reconfigure, "", "log of slurmctld"},
	{"SlurmdSpoolDir", WorkerSpoolDir, Values{}, "", reconfigure, "", "spool directory of slurmd"},
	{"SlurmdPidFile", WorkerPID, Values{}, "", reconfigure, "", "pid file of slurmd"},
	{"SlurmdLogFile", WorkerLog, Values{}, "", reconfigure, "", "log of slurmd"},
	{"SlurmctldTimeout", "30", Values{}, "", reconfigure, "22.05 24.11 26.05", "wait of a backup controller; Berth sets up none"},
	{"SlurmdTimeout", "", between(30, 65533), "nodes.timeout_seconds", reconfigure, "22.05 24.11 26.05",
		"silence after which a node is DOWN and its jobs are requeued"},
	{"KillWait", "", between(1, 65533), "jobs.kill_wait_seconds", reconfigure, "22.05 24.11 26.05",
		"time from SIGTERM to SIGKILL at the end of a job's time"},
	{"UnkillableStepTimeout", "", between(60, 65533), "jobs.unkillable_step_seconds", reconfigure, "22.05 24.11 26.05",
		"wait for processes that SIGKILL does not end; then the node drains"},
	{"ReturnToService", "", between(0, 2), "nodes.return_to_service", reconfigure, "22.05 24.11 26.05",
		"1: a node that was DOWN for silence returns by itself; 2: each; 0: none"},
	{"HealthCheckProgram", "", form(ProgramDir + `/` + programForm), "health_check.program", reconfigure, "22.05 24.11 26.05",
		"program that slurmd runs as root on each worker, to drain a node that is not sound"},
	{"HealthCheckInterval", "", between(10, 65535), "health_check.interval_seconds", reconfigure, "22.05 24.11 26.05",
		"seconds between two runs of HealthCheckProgram"},
	{"HealthCheckNodeState", "", words("ANY", "IDLE"), "health_check.nodes", reconfigure, "22.05 24.11 26.05",
		"nodes on which HealthCheckProgram runs"},
	{"Prolog", "", form(ProgramDir + `/` + programForm), "job_programs.prolog.program", reconfigure, "22.05 24.11 26.05",
		"program that slurmd runs as root on each worker of a job before the job starts there"},
	{"Epilog", "", form(ProgramDir + `/` + programForm), "job_programs.epilog.program", reconfigure, "22.05 24.11 26.05",
		"program that slurmd runs as root on each worker of a job after the job has ended there"},
	{"PrologEpilogTimeout", "", between(10, 3600), "job_programs.timeout_seconds", reconfigure, "22.05 24.11 26.05",
		"seconds after which Prolog or Epilog has failed"},
	{"ProctrackType", "", words("proctrack/cgroup", "proctrack/linuxproc"), "confinement", everywhereOrReconfigure, "22.05 24.11 26.05",
		"how slurmd knows the processes of a job"},
	{"TaskPlugin", "", words("task/cgroup,task/affinity", "task/none"), "confinement", everywhereOrReconfigure, "22.05 24.11 26.05",
		"binds a job to its CPUs, memory and devices"},
	{"JobAcctGatherType", "", words("jobacct_gather/cgroup", "jobacct_gather/linux"), "confinement", everywhereOrReconfigure,
		"22.05 24.11 26.05", "source of a job's use of CPU and memory"},
	{"PrologFlags", "", words("Contain", "Alloc"), "confinement", everywhereOrReconfigure, "22.05 24.11 26.05",
		"a cgroup for each job from its start"},
	{"PropagateResourceLimitsExcept", "MEMLOCK", Values{}, "", reconfigure, "",
		"a login shell has little locked memory, and a job's comes from slurmd"},
	{"SwitchType", "switch/none", Values{}, "", controller, "", "no special network"},
	{"MpiDefault", "none", Values{}, "", reconfigure, "", "MPI type of srun without --mpi"},
	{"MailProg", "/bin/true", Values{}, "", reconfigure, "22.05 24.11 26.05", "Slurm sends no mail"},
	{"SelectType", "select/cons_tres", Values{}, "", everywhere, "", "jobs share nodes by CPU, memory and GPU"},
	{"SelectTypeParameters", "CR_Core_Memory", Values{}, "", controllerOrReconfigure, "22.05 24.11 26.05",
		"cores and memory are allocated, never shared"},
	{"DefMemPerCPU", "", between(1, 1e9), "", reconfigure, "22.05 24.11 26.05",
		"MiB with each CPU of a job that requests no memory, from the nodes' shape"},
	{"DefMemPerGPU", "", between(1, 1e9), "jobs.gpu_defaults", reconfigure, "22.05 24.11 26.05",
		"MiB with each GPU of a job that requests no memory, from the nodes' shape"},
	{"DefCpuPerGPU", "", between(1, 1e6), "jobs.gpu_defaults", reconfigure, "22.05 24.11 26.05",
		"CPUs with each GPU of a job that requests no CPUs, from the nodes' shape"},
	{"GresTypes", "gpu", Values{}, "", everywhereOrReconfigure, "", "kinds of generic resources"},
	{"SchedulerParameters", "", form(schedulerForm), "scheduler", reconfigure, "22.05 24.11 26.05",
		"intervals and depth of the schedulers"},
	{"PriorityType", "", words("priority/multifactor", "priority/basic"), "priority.type", controllerOrReconfigure, "22.05 24.11 26.05",
		"order of pending jobs; basic: first in, first out"},
	{"PriorityWeightAge", "", weight, "priority.weights.age", reconfigure, "22.05 24.11 26.05", "weight of the time that a job has waited"},
	{"PriorityWeightFairshare", "", weight, "priority.weights.fairshare", reconfigure, "22.05 24.11 26.05",
		"weight of the unused share of user and account"},
	{"PriorityWeightJobSize", "", weight, "priority.weights.job_size", reconfigure, "22.05 24.11 26.05", "weight of the size of a job"},
	{"PriorityWeightPartition", "", weight, "priority.weights.partition", reconfigure, "22.05 24.11 26.05", "weight of the partition"},
	{"PriorityWeightQOS", "", weight, "priority.weights.qos", reconfigure, "22.05 24.11 26.05", "weight of the QoS"},
	{"PriorityDecayHalfLife", "", form(hours), "priority.decay_half_life_hours", reconfigure, "22.05 24.11 26.05",
		"half-life of past usage; 0: none is forgotten"},
	{"PriorityMaxAge", "", form(hours), "priority.max_age_hours", reconfigure, "22.05 24.11 26.05",
		"waiting time with the full weight of age"},
	{"PreemptType", "", words("preempt/none", "preempt/partition_prio", "preempt/qos"), "preemption.by", controllerOrReconfigure,
		"22.05 24.11 26.05", "what makes a pending job preempt running ones"},
	{"PreemptMode", "", words("OFF", "REQUEUE", "CANCEL"), "preemption.mode", reconfigure, "22.05 24.11 26.05",
		"what happens to a preempted job"},
	{"PreemptExemptTime", "", form(`[0-9]{2,5}:[0-5][0-9]:00`), "preemption.exempt_minutes", reconfigure, "22.05 24.11 26.05",
		"time that a job runs before it can be preempted"},
	{"PrivateData", "", listOf(PrivateData()...), "private_data", reconfigure, "22.05 24.11 26.05", "what users do not see of others"},
	{"TopologyPlugin", "", words("topology/tree"), "topology", controllerOrReconfigure, "22.05 24.11 26.05",
		"jobs are placed by the switches of topology.conf"},
	{"AccountingStorageType", "accounting_storage/slurmdbd", Values{}, "", controller, "", "accounting by slurmdbd"},
	{"AccountingStorageHost", "", form(addressForm), "", controller, "", "host of slurmdbd"},
	{"AccountingStoragePort", "", between(1000, 65535), "", controller, "", "port of slurmdbd, chosen by Berth"},
	{"AccountingStoragePass", "/run/munge-{cluster}/munge.socket.2", Values{}, "", controller, "",
		"socket of munged; Slurm does not use AuthInfo here"},
	{"AccountingStorageTRES", "gres/gpu", Values{}, "", reconfigure, "", "GPUs are accounted"},
	{"AccountingStorageEnforce", "associations,limits,qos,safe", Values{}, "", controllerOrReconfigure, "22.05 24.11 26.05",
		"only declared users and QoS, within their limits"},
	{"AccountingStoreFlags", "job_comment", Values{}, "", reconfigure, "22.05 24.11 26.05", "a job's comment is accounted"},
	{"EnforcePartLimits", "ALL", Values{}, "", reconfigure, "22.05 24.11 26.05", "a job that fits none of its partitions is refused"},
}, Options(), []Parameter{
	{NodeName, "", form(nodeForm + `|` + NoNode), "", controllerOrReconfigure, "22.05 24.11 26.05", "a worker, with its shape"},
	{PartitionName, "", form(lineForm), "partitions", reconfigure, "22.05 24.11 26.05", "a partition"},
	{"JobContainerType", "", Values{}, "", everywhere, "", "set by hand only"},
	{"PluginDir", "", Values{}, "", everywhere, "", "set by hand only"},
	{"SchedulerType", "", Values{}, "", controller, "", "set by hand only"},
})

const hours = `[0-9]{1,6}:00:00|0`

// weight has the numbers that Slurm takes for a weight of the priority: those of 32 bits.
var weight = between(0, MaxWeight)

// MaxWeight is the highest weight of a factor of a job's priority, and the highest priority:
// slurmctld ends with an error for a higher weight, and cuts a higher priority.
const MaxWeight = 1<<32 - 1

// PrivateData returns the kinds of information that a cluster can hide.
func PrivateData() []string {
	return []string{"accounts", "events", "jobs", "nodes", "partitions", "reservations", "usage", "users"}
}

// Options returns the parameters that options in an instance's config can set by name.
// None of them names a program, a library or a path.
func Options() []Parameter { return slices.Clone(options) }

var options = []Parameter{
	option("BatchStartTimeout", between(1, 65533), reconfigure, "22.05 24.11 26.05", "seconds until a batch job has to have started"),
	option("CompleteWait", between(0, 65533), reconfigure, "22.05 24.11 26.05", "seconds that a job's nodes wait for its last processes"),
	option("DebugFlags", listOf("Agent", "Backfill", "BackfillMap", "Dependency", "Gres", "JobAccountGather", "Priority", "Protocol",
		"Reservation", "SelectType", "Steps", "Switch", "TraceJobs", "Triggers"), reconfigure, "22.05 24.11 26.05",
		"more about these in the logs"),
	option("DependencyParameters", listOf("disable_remote_singleton", "kill_invalid_depend"), reconfigure, "22.05 24.11 26.05",
		"what happens to jobs with an impossible dependency"),
	option("DisableRootJobs", words("YES", "NO"), reconfigure, "22.05 24.11 26.05", "root cannot run jobs"),
	option("FairShareDampeningFactor", between(1, 65533), reconfigure, "22.05 24.11 26.05", "how fast fair share falls with usage"),
	option("GroupUpdateForce", between(0, 1), reconfigure, "22.05 24.11 26.05", "1: groups are read again though the file is unchanged"),
	option("GroupUpdateTime", between(0, 65533), reconfigure, "22.05 24.11 26.05", "seconds between two reads of the groups"),
	option("InactiveLimit", between(0, 65533), reconfigure, "22.05 24.11 26.05",
		"seconds until a job ends whose srun or salloc does not answer; 0: never"),
	option("JobAcctGatherFrequency", form(`(task|energy|network|filesystem)=[0-9]{1,5}|[0-9]{1,5}`), reconfigure, "22.05 24.11 26.05",
		"seconds between two samples of a job's use, as task=30"),
	option("JobFileAppend", between(0, 1), reconfigure, "22.05 24.11 26.05", "1: a requeued job appends to its output"),
	option("JobRequeue", between(0, 1), reconfigure, "22.05 24.11 26.05", "0: no job is requeued after a node failed"),
	option("KillOnBadExit", between(0, 1), reconfigure, "22.05 24.11 26.05", "1: a step ends when one of its tasks fails"),
	option("LaunchParameters", listOf("batch_step_set_cpu_freq", "enable_nss_slurm", "mpir_use_nodeaddr", "send_gids", "slurmstepd_memlock",
		"slurmstepd_memlock_all", "test_exec", "use_interactive_step"), reconfigure, "22.05 24.11 26.05", "how jobs and steps start"),
	option("MaxArraySize", between(0, 4000001), controllerOrReconfigure, "22.05 24.11 26.05", "largest index of a job array, plus one"),
	option("MaxDBDMsgs", between(10000, 10000000), reconfigure, "22.05 24.11 26.05", "messages kept for slurmdbd while it is away"),
	option("MaxJobCount", between(1, 10000000), controllerOrReconfigure, "22.05 24.11 26.05", "jobs in slurmctld at one time"),
	option("MaxMemPerNode", between(0, 1e9), reconfigure, "22.05 24.11 26.05", "most MiB of a job on a node; 0: no limit"),
	option("MaxStepCount", between(1, 1e9), reconfigure, "22.05 24.11 26.05", "steps of a job"),
	option("MaxTasksPerNode", between(1, 65533), reconfigure, "22.05 24.11 26.05", "tasks of a step on a node"),
	option("MessageTimeout", between(5, 100), reconfigure, "22.05 24.11 26.05", "seconds for one request and its answer"),
	option("MinJobAge", between(2, 1e9), reconfigure, "22.05 24.11 26.05", "seconds that slurmctld keeps an ended job"),
	option("OverTimeLimit", between(0, 65533), reconfigure, "22.05 24.11 26.05", "minutes that a job may exceed its time"),
	option("PreemptParameters", listOf("reclaim_licenses", "reorder_count=[0-9]{1,3}", "send_user_signal", "strict_order",
		"youngest_first"), Classes{Unsupported, Reconfigure, Reconfigure}, "24.11 26.05", "which jobs are preempted first"),
	option("PriorityCalcPeriod", between(1, 65533), reconfigure, "22.05 24.11 26.05", "minutes between two runs of the decay of usage"),
	option("PriorityFavorSmall", words("YES", "NO"), reconfigure, "22.05 24.11 26.05", "small jobs first"),
	option("PriorityFlags", listOf("ACCRUE_ALWAYS", "CALCULATE_RUNNING", "DEPTH_OBLIVIOUS", "INCR_ONLY", "MAX_TRES", "NO_NORMAL_ALL",
		"NO_NORMAL_ASSOC", "NO_NORMAL_PART", "NO_NORMAL_QOS", "SMALL_RELATIVE_TO_TIME"), reconfigure, "22.05 24.11 26.05",
		"how factors of the priority are computed"),
	option("PriorityUsageResetPeriod", words("NONE", "NOW", "DAILY", "WEEKLY", "MONTHLY", "QUARTERLY", "YEARLY"), reconfigure,
		"22.05 24.11 26.05", "when past usage becomes 0"),
	option("PropagatePrioProcess", between(0, 2), reconfigure, "22.05 24.11 26.05", "1, 2: a job has the nice value of its submission"),
	option("RequeueExit", form(exitCodes), reconfigure, "22.05 24.11 26.05", "exit codes after which a batch job is requeued"),
	option("RequeueExitHold", form(exitCodes), reconfigure, "22.05 24.11 26.05", "exit codes after which a batch job is requeued and held"),
	option("ResvOverRun", between(0, 65533), reconfigure, "22.05 24.11 26.05", "minutes that a job may outlive its reservation"),
	option("SlurmctldDebug", levels, reconfigure, "22.05 24.11 26.05", "detail of the log of slurmctld"),
	option("SlurmdDebug", levels, reconfigure, "22.05 24.11 26.05", "detail of the log of slurmd"),
	option("SrunPortRange", form(`[1-9][0-9]{3,4}-[1-9][0-9]{3,4}`), reconfigure, "22.05 24.11 26.05",
		"ports on which srun listens, as 60001-63000"),
	option("TCPTimeout", between(2, 65533), reconfigure, "22.05 24.11 26.05", "seconds to establish a connection"),
	option("WaitTime", between(0, 65533), reconfigure, "22.05 24.11 26.05",
		"seconds that srun waits after its first task has ended; 0: no limit"),
	option("MaxBatchRequeue", between(1, 65533), Classes{Unsupported, Reconfigure, Reconfigure}, "24.11 26.05",
		"requeues of a batch job before it is held"),
}

const exitCodes = `[0-9]{1,3}(-[0-9]{1,3})?(,[0-9]{1,3}(-[0-9]{1,3})?){0,31}`

var levels = words("quiet", "fatal", "error", "info", "verbose", "debug", "debug2", "debug3", "debug4", "debug5")

func option(name string, allowed Values, classes Classes, tried, meaning string) Parameter {
	return Parameter{name, "", allowed, OptionsField + "." + name, classes, tried, meaning}
}

// OptionsField is the field of an instance's config that has options by name.
const OptionsField = "options"

// SlurmConf lists the parameters of the stack's slurm.conf in their order, nodes and
// partitions last. The runtime renders them, and the helper allows no others.
func (s Stack) SlurmConf() []Parameter { return fill(slurmConf, s.Cluster) }

// fill returns rows with the name of a cluster in their values.
func fill(rows []Parameter, cluster string) []Parameter {
	rows = slices.Clone(rows)
	for i := range rows {
		rows[i].Value = strings.ReplaceAll(rows[i].Value, "{cluster}", cluster)
	}
	return rows
}

// ActivationOf returns what makes the daemons of a version take over a changed parameter of
// slurm.conf: one of the table, or one that a person has added. A change that needs a
// restart must not be tried with a reconfigure: for some parameters slurmctld exits with
// "fatal", and the client gets no error.
func ActivationOf(name, version string) Activation {
	for i := range slurmConf {
		if strings.EqualFold(slurmConf[i].Name, name) {
			return max(slurmConf[i].Classes.On(version), None)
		}
	}
	return Reconfigure
}

// AllowsSlurmConf reports whether slurm.conf may have a parameter with a value.
func AllowsSlurmConf(name, value string) bool {
	return slices.ContainsFunc(slurmConf, func(p Parameter) bool { return p.Name == name && p.allows(value) })
}

// Confinement lists the lines of cgroup.conf that confine jobs to the CPUs, memory and
// devices that they asked for (cgroup.conf(5)).
func Confinement() []string {
	return []string{"ConstrainCores=yes", "ConstrainRAMSpace=yes", "ConstrainSwapSpace=yes", "ConstrainDevices=yes"}
}

// SlurmdbdConf lists the parameters of the stack's slurmdbd.conf in their order. Each change
// restarts slurmdbd and no other daemon.
func (s Stack) SlurmdbdConf() []Parameter { return fill(slurmdbdConf, s.Cluster) }

var slurmdbdConf = []Parameter{
	{Name: "DbdHost", Value: "localhost", Meaning: "host of slurmdbd"},
	{Name: "DbdPort", Allowed: between(1000, 65535), Meaning: "port of slurmdbd, chosen by Berth"},
	{Name: "AuthType", Value: "auth/munge", Meaning: "clients are known by munge"},
	{Name: "AuthInfo", Value: "socket=/run/munge-{cluster}/munge.socket.2", Meaning: "socket of the cluster's munged"},
	{Name: "SlurmUser", Value: SlurmUser, Meaning: "account of slurmdbd"},
	{Name: "Parameters", Value: "PreserveCaseUser", Meaning: "a user has the name of the host's account, which may have capitals"},
	{Name: "PidFile", Value: "/run/slurm-{cluster}/slurmdbd.pid", Meaning: "pid file"},
	{Name: "LogFile", Value: LogDir + "/{cluster}/slurmdbd.log", Meaning: "log"},
	{Name: "StorageType", Value: "accounting_storage/mysql", Meaning: "records in MariaDB"},
	{Name: "StorageHost", Value: "localhost", Meaning: "by socket, which authenticates the account without a password"},
	{Name: "StorageUser", Value: SlurmUser, Meaning: "account in MariaDB"},
	{Name: "StorageLoc", Value: "slurm_acct_{cluster}", Meaning: "database"},
	{Name: "PrivateData", Allowed: listOf(PrivateRecords()...), Field: "private_data", Tried: "22.05 24.11 26.05",
		Meaning: "which records users do not see of others"},
	purge("PurgeEventAfter", "retention.records_months", "events of nodes and clusters"),
	purge("PurgeJobAfter", "retention.records_months", "ended jobs"),
	purge("PurgeResvAfter", "retention.records_months", "reservations"),
	purge("PurgeStepAfter", "retention.records_months", "steps"),
	purge("PurgeSuspendAfter", "retention.records_months", "suspensions of jobs"),
	purge("PurgeTXNAfter", "retention.records_months", "changes of accounting"),
	purge("PurgeUsageAfter", "retention.usage_months", "usage of users and accounts"),
}

// purge returns a row for the age of records at which slurmdbd removes them. slurmdbd.conf(5)
// counts months so that it removes them at the start of a month.
func purge(name, field, what string) Parameter {
	return Parameter{Name: name, Allowed: form(`[1-9][0-9]{0,3}months`), Field: field, Tried: "22.05 24.11 26.05",
		Meaning: "age at which records are removed: " + what}
}

// PrivateRecords returns the kinds of PrivateData that slurmdbd can hide.
func PrivateRecords() []string {
	return []string{"accounts", "events", "jobs", "reservations", "usage", "users"}
}
