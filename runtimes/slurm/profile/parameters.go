package profile

import "regexp"

// Parameter is a key of a configuration file.
type Parameter struct {
	Name  string
	Value string // as the runtime writes it; empty: depends on the instance
	Form  string // regular expression of the allowed values; empty: Value only
	// Needs is what makes the daemons of Slurm 22.05 take over another value.
	Needs Activation
}

// Activation is how daemons take over a changed file. A greater one includes the effect of
// a lesser one.
type Activation int

// None is for changed comments. Reconfigure is `scontrol reconfigure`. RestartController
// restarts slurmctld, RestartAll also the slurmd of each worker. Jobs go on through all of
// them.
const (
	None Activation = iota
	Reconfigure
	RestartController
	RestartAll
)

// TakenOverAnew lists parameters that need a restart on 22.05 and that a reconfigure takes
// over where it starts the daemons anew: those for which this was tried on 24.11 and 26.05.
func TakenOverAnew() []string {
	return []string{
		"ProctrackType", "TaskPlugin", "JobAcctGatherType", "PrologFlags", "GresTypes", "SelectTypeParameters",
		"AccountingStorageEnforce", NodeName,
	}
}

// allows reports whether a file may have this value.
func (p Parameter) allows(value string) bool {
	if p.Form == "" {
		return value == p.Value
	}
	return regexp.MustCompile(`^(?:` + p.Form + `)$`).MatchString(value)
}

const (
	addressForm  = `[A-Za-z0-9]([A-Za-z0-9.:-]{0,252})`
	portForm     = `[1-9][0-9]{3,4}`
	nodesForm    = `[1-9][0-9]{0,5}`
	secondsForm  = `[1-9][0-9]{0,4}`
	intervalForm = `[0-9]{1,6}`
	nodeForm     = `[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])? NodeAddr=` + addressForm + ` CPUs=[1-9][0-9]{0,8} RealMemory=[1-9][0-9]{0,8}` +
		`( Gres=gpu:[a-z0-9][-a-z0-9_]{0,39}:[1-9][0-9]{0,3}(,gpu:[a-z0-9][-a-z0-9_]{0,39}:[1-9][0-9]{0,3}){0,7})?` +
		` Feature=[a-z0-9][-a-z0-9_]{0,63}(,[a-z0-9][-a-z0-9_]{0,63}){0,15}`
)

// The parameters with any number of lines.
const (
	NodeName      = "NodeName"
	PartitionName = "PartitionName"
)

// NoNode is the node of a cluster without workers, as slurmctld does not start without any.
// No tool of Slurm shows a node in state FUTURE.
const NoNode = "none State=FUTURE"

// SlurmConf lists the parameters of the stack's slurm.conf in their order, nodes and
// partitions last. The runtime renders them, and the helper allows no others.
func (s Stack) SlurmConf() []Parameter {
	return []Parameter{
		{"ClusterName", s.Cluster, "", RestartController},
		{"SlurmctldHost", "", `[A-Za-z0-9][-A-Za-z0-9_.]{0,252}\(` + addressForm + `\)`, RestartController},
		{"SlurmctldPort", "", portForm, RestartController},
		{"SlurmdPort", "6818", portForm, RestartAll},
		{"SlurmUser", SlurmUser, "", RestartController},
		{"AuthType", "auth/munge", "", RestartAll},
		{"AuthInfo", "socket=" + s.MungeSocket(), "", RestartAll},
		{"CredType", "cred/munge", "", RestartAll},
		{"SlurmctldParameters", "enable_configless", "", RestartController},
		{"TreeWidth", "65533", nodesForm, RestartAll}, // no slurmd forwards to a node that it may not know yet
		{"StateSaveLocation", s.State(), "", RestartController},
		{"FirstJobId", "", `[1-9][0-9]{0,9}`, Reconfigure}, // above the ids of lost jobs
		{"SlurmctldPidFile", s.Run() + "/slurmctld.pid", "", Reconfigure},
		{"SlurmctldLogFile", s.Log() + "/slurmctld.log", "", Reconfigure},
		{"SlurmdSpoolDir", WorkerSpoolDir, "", Reconfigure},
		{"SlurmdPidFile", WorkerPID, "", Reconfigure},
		{"SlurmdLogFile", WorkerLog, "", Reconfigure},
		{"SlurmctldTimeout", "30", secondsForm, Reconfigure},
		{"SlurmdTimeout", "60", secondsForm, Reconfigure},
		{"ReturnToService", "2", `[012]`, Reconfigure},
		{"ProctrackType", "", `proctrack/(cgroup|linuxproc)`, RestartAll},
		{"TaskPlugin", "", `task/(cgroup,task/affinity|none)`, RestartAll},
		{"JobAcctGatherType", "", `jobacct_gather/(cgroup|linux)`, RestartAll},
		{"PrologFlags", "", `Contain|Alloc`, RestartAll},
		{"PropagateResourceLimitsExcept", "MEMLOCK", "", Reconfigure}, // a login shell has little locked memory, and a job's comes from slurmd
		{"SwitchType", "switch/none", "", RestartController},
		{"MpiDefault", "none", "", Reconfigure},
		{"MailProg", "/bin/true", "", Reconfigure},
		{"SelectType", "select/cons_tres", "", RestartAll},
		{"SelectTypeParameters", "CR_Core_Memory", "", RestartController},
		{"DefMemPerCPU", "", `[1-9][0-9]{0,8}`, Reconfigure}, // otherwise a job that requests no memory gets all of the node
		{"GresTypes", "gpu", "", RestartAll},
		{"SchedulerParameters", "", `sched_interval=` + intervalForm + `,batch_sched_delay=` + intervalForm + `,bf_interval=` + intervalForm, Reconfigure},
		{"AccountingStorageType", "accounting_storage/slurmdbd", "", RestartController},
		{"AccountingStorageHost", "", addressForm, RestartController},
		{"AccountingStoragePort", "", portForm, RestartController},
		{"AccountingStoragePass", s.MungeSocket(), "", RestartController}, // Slurm does not use AuthInfo here
		{"AccountingStorageTRES", "gres/gpu", "", Reconfigure},
		{"AccountingStorageEnforce", "associations,limits,qos,safe", "", RestartController},
		{"AccountingStoreFlags", "job_comment", "", Reconfigure},
		{"EnforcePartLimits", "ALL", "", Reconfigure},
		{NodeName, "", nodeForm + `|` + NoNode, RestartController},
		{PartitionName, "", `[a-z][-a-z0-9_]{0,31} Nodes=ALL State=(UP|INACTIVE) MaxTime=(UNLIMITED|[1-9][0-9]{0,8})( Default=YES)?`, Reconfigure},
	}
}

// Confinement lists the lines of cgroup.conf that confine jobs to the CPUs, memory and
// devices that they asked for (cgroup.conf(5)).
func Confinement() []string {
	return []string{"ConstrainCores=yes", "ConstrainRAMSpace=yes", "ConstrainSwapSpace=yes", "ConstrainDevices=yes"}
}

// SlurmdbdConf lists the parameters of the stack's slurmdbd.conf in their order. Each change
// restarts slurmdbd and no other daemon.
func (s Stack) SlurmdbdConf() []Parameter {
	return []Parameter{
		{"DbdHost", "localhost", "", None},
		{"DbdPort", "", portForm, None},
		{"AuthType", "auth/munge", "", None},
		{"AuthInfo", "socket=" + s.MungeSocket(), "", None},
		{"SlurmUser", SlurmUser, "", None},
		{"PidFile", s.Run() + "/slurmdbd.pid", "", None},
		{"LogFile", s.Log() + "/slurmdbd.log", "", None},
		{"StorageType", "accounting_storage/mysql", "", None},
		{"StorageHost", "localhost", "", None}, // by socket, which authenticates the account without a password
		{"StorageUser", SlurmUser, "", None},
		{"StorageLoc", s.Database(), "", None},
	}
}
