package profile

import "regexp"

// Parameter is a key of a configuration file.
type Parameter struct {
	Name  string
	Value string // as the runtime writes it; empty: depends on the instance
	Form  string // regular expression of the allowed values; empty: Value only
	// Restart: Slurm 22.05 reads it only when a daemon starts.
	Restart bool
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

// SlurmConf lists the parameters of the stack's slurm.conf in their order, nodes and
// partitions last. The runtime renders them, and the helper allows no others.
func (s Stack) SlurmConf() []Parameter {
	return []Parameter{
		{"ClusterName", s.Cluster, "", true},
		{"SlurmctldHost", "", `[A-Za-z0-9][-A-Za-z0-9_.]{0,252}\(` + addressForm + `\)`, true},
		{"SlurmctldPort", "", portForm, true},
		{"SlurmdPort", "6818", portForm, true},
		{"SlurmUser", SlurmUser, "", true},
		{"AuthType", "auth/munge", "", true},
		{"AuthInfo", "socket=" + s.MungeSocket(), "", true},
		{"CredType", "cred/munge", "", true},
		{"SlurmctldParameters", "enable_configless", "", true},
		{"SlurmdParameters", "config_overrides", "", false}, // Berth checks the resources of a node
		{"TreeWidth", "65533", nodesForm, true},             // no slurmd forwards to a node that it may not know yet
		{"StateSaveLocation", s.State(), "", true},
		{"FirstJobId", "", `[1-9][0-9]{0,9}`, false}, // above the ids of lost jobs
		{"SlurmctldPidFile", s.Run() + "/slurmctld.pid", "", false},
		{"SlurmctldLogFile", s.Log() + "/slurmctld.log", "", false},
		{"SlurmdSpoolDir", WorkerSpoolDir, "", false},
		{"SlurmdPidFile", WorkerPID, "", false},
		{"SlurmdLogFile", WorkerLog, "", false},
		{"SlurmctldTimeout", "30", secondsForm, false},
		{"SlurmdTimeout", "60", secondsForm, false},
		{"ReturnToService", "2", `[012]`, false},
		{"ProctrackType", "proctrack/linuxproc", "", true},
		{"TaskPlugin", "task/none", "", true},
		{"JobAcctGatherType", "jobacct_gather/linux", "", false},
		{"SwitchType", "switch/none", "", true},
		{"MpiDefault", "none", "", false},
		{"MailProg", "/bin/true", "", false},
		{"SelectType", "select/cons_tres", "", true},
		{"SelectTypeParameters", "CR_Core_Memory", "", true},
		{"DefMemPerCPU", "256", `[1-9][0-9]{0,8}`, false}, // otherwise a job that requests no memory gets all of the node
		{"GresTypes", "gpu", "", true},
		{"SchedulerParameters", "", `sched_interval=` + intervalForm + `,batch_sched_delay=` + intervalForm + `,bf_interval=` + intervalForm, false},
		{"AccountingStorageType", "accounting_storage/slurmdbd", "", true},
		{"AccountingStorageHost", "", addressForm, true},
		{"AccountingStoragePort", "", portForm, true},
		{"AccountingStoragePass", s.MungeSocket(), "", true}, // Slurm does not use AuthInfo here
		{"AccountingStorageTRES", "gres/gpu", "", false},
		{"AccountingStorageEnforce", "associations,limits,qos,safe", "", true},
		{"AccountingStoreFlags", "job_comment", "", false},
		{"EnforcePartLimits", "ALL", "", false},
		{NodeName, "", nodeForm, true},
		{PartitionName, "", `[a-z][-a-z0-9_]{0,31} Nodes=ALL State=UP MaxTime=(UNLIMITED|[1-9][0-9]{0,8})( Default=YES)?`, false},
	}
}

// SlurmdbdConf lists the parameters of the stack's slurmdbd.conf in their order.
func (s Stack) SlurmdbdConf() []Parameter {
	return []Parameter{
		{"DbdHost", "localhost", "", true},
		{"DbdPort", "", portForm, true},
		{"AuthType", "auth/munge", "", true},
		{"AuthInfo", "socket=" + s.MungeSocket(), "", true},
		{"SlurmUser", SlurmUser, "", true},
		{"PidFile", s.Run() + "/slurmdbd.pid", "", true},
		{"LogFile", s.Log() + "/slurmdbd.log", "", true},
		{"StorageType", "accounting_storage/mysql", "", true},
		{"StorageHost", "localhost", "", true}, // by socket, which authenticates the account without a password
		{"StorageUser", SlurmUser, "", true},
		{"StorageLoc", s.Database(), "", true},
	}
}
