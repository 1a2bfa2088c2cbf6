package profile

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Paths on a host. Each control stack has directories with the name of its cluster,
// so several stacks share a controller. A worker belongs to one cluster and uses
// the default paths of the distribution's daemons where it has to.
const (
	// InstanceDir holds one record per instance that has something on the host.
	InstanceDir = "/var/lib/berth/instances"

	// BackupDir has a directory for each cluster. Only root reads and writes it.
	BackupDir = "/var/lib/berth/backups"

	// ProgramDir has programs that Slurm runs as root. The administrator of the host puts them
	// there: neither Git nor a request can write to it.
	ProgramDir = "/usr/local/libexec/berth-slurm"

	// JobsDir has a directory for each cluster with jobs on the host, with a directory for each
	// user of it: jobs without a directory of their own run there.
	JobsDir = StateDir + "/berth-jobs"

	EtcDir   = "/etc/slurm"
	StateDir = "/var/lib/slurm"
	LogDir   = "/var/log/slurm"
	MungeEtc = "/etc/munge"
	MungeLib = "/var/lib/munge"
	MungeLog = "/var/log/munge"

	// The shared database of a controller, away from the distribution's own.
	DatabaseDir  = StateDir + "/berth-mariadb"
	DatabaseData = DatabaseDir + "/data"
	// DatabaseInstalled exists once DatabaseData is complete.
	DatabaseInstalled = DatabaseDir + "/installed"
	DatabaseLog       = DatabaseDir + "/mariadbd.log"
	DatabaseRunDir    = "/run/berth-mariadb"
	DatabaseFiles     = "/run/berth-mariadb-files" // stays empty; only root can replace it
	DatabaseSocket    = DatabaseRunDir + "/mariadbd.sock"

	// A worker's paths. The files have names of their own, as those of the
	// distribution's munge and slurmd may exist. Only the directory of the socket is
	// shared: clients use its default path.
	WorkerMungeKey    = MungeEtc + "/berth-worker.key"
	WorkerMungeRun    = "/run/munge"
	WorkerMungeSocket = WorkerMungeRun + "/munge.socket.2"
	WorkerRunDir      = "/run/slurm"
	WorkerSpoolDir    = StateDir + "/berth-slurmd"
	WorkerLog         = LogDir + "/berth-slurmd.log"
	WorkerPID         = WorkerRunDir + "/slurmd.pid"
	WorkerMungeLog    = MungeLog + "/berth-worker.log"
	WorkerMungeSeed   = MungeLib + "/berth-worker.seed"
	WorkerConfLink    = WorkerRunDir + "/conf" // made by slurmd, to workerConfCache
	workerConfCache   = WorkerSpoolDir + "/conf-cache"

	// WorkerRecord is a worker's record of its cluster. It never collides with the
	// record of a stack, as names of clusters end in a hash.
	WorkerRecord = InstanceDir + "/worker.json"

	// Accounts of the daemons, made by the distribution's packages.
	SlurmUser    = "slurm"
	MungeUser    = "munge"
	DatabaseUser = "mysql"
)

// Stack gives the paths of the control stack of a cluster. Its munged, its database and its backups
// have types of their own.
type Stack struct{ Cluster string }

// Record is the host's record of the instance.
func (s Stack) Record() string { return InstanceDir + "/" + s.Cluster + ".json" }

// RecordCopy has the same text, for when the record is damaged or gone.
func (s Stack) RecordCopy() string { return CopyOf(s.Record()) }

// CopyOf returns the path of the copy of a record, and RecordOf that of the record of a copy; another path stays.
func CopyOf(record string) string { return record + copyEnd }

// RecordOf: see CopyOf.
func RecordOf(path string) string { return strings.TrimSuffix(path, copyEnd) }

const copyEnd = ".copy"

// DamagedRecord is the path of the JSON file that keeps the text of an unreadable record.
func (s Stack) DamagedRecord() string { return s.Record() + ".damaged" }

// ConfigFiles are all files of the stack's configuration.
func (s Stack) ConfigFiles() []string {
	var list []string
	for _, name := range []string{"slurm.conf", "slurm.conf.previous", "gres.conf", "cgroup.conf", "topology.conf", "plugstack.conf",
		"slurmdbd.conf"} {
		list = append(list, s.Etc()+"/"+name)
	}
	return list
}

// FetchedFiles are the files that a slurmd fetches from slurmctld, with the place of each on a
// worker.
func (s Stack) FetchedFiles() map[string]string {
	files := map[string]string{}
	for _, name := range []string{"slurm.conf", "gres.conf", "cgroup.conf", "topology.conf", "plugstack.conf"} {
		files[s.Etc()+"/"+name] = workerConfCache + "/" + name
	}
	return files
}

// FetchedPaths are the places of the fetched files on a worker.
func (s Stack) FetchedPaths() []string {
	return slices.Sorted(maps.Values(s.FetchedFiles()))
}

// Etc is the directory of the stack's configuration.
func (s Stack) Etc() string { return EtcDir + "/" + s.Cluster }

// Conf is the stack's slurm.conf, the value of SLURM_CONF for its clients.
func (s Stack) Conf() string { return s.Etc() + "/slurm.conf" }

// CgroupConf is the stack's cgroup.conf.
func (s Stack) CgroupConf() string { return s.Etc() + "/cgroup.conf" }

// TopologyConf is the stack's topology.conf.
func (s Stack) TopologyConf() string { return s.Etc() + "/topology.conf" }

// DBDConf is the configuration of the stack's slurmdbd.
func (s Stack) DBDConf() string { return s.Etc() + "/slurmdbd.conf" }

// Lib is the stack's own directory below StateDir.
func (s Stack) Lib() string { return StateDir + "/" + s.Cluster }

// State is the StateSaveLocation.
func (s Stack) State() string { return s.Lib() + "/state" }

// StateMark is a file that slurmctld makes in its state at its first start, and keeps.
func (s Stack) StateMark() string { return s.State() + "/" + stateMark }

// SavedAssociations is slurmctld's copy of the associations in slurmdbd, with which it starts without slurmdbd.
func (s Stack) SavedAssociations() string { return s.State() + "/" + savedAssociations }

// Files of slurmctld's state.
const (
	stateMark         = "clustername"
	savedAssociations = "assoc_mgr_state"
)

// Accounts is the file for sacctmgr load.
func (s Stack) Accounts() string { return s.Lib() + "/accounts.cfg" }

// Jobs is the directory of the users' directories on a worker.
func (s Stack) Jobs() string { return JobsDir + "/" + s.Cluster }

// JobsOf is where jobs of a user run that name no directory. The uid keeps a later user of the
// same name out.
func (s Stack) JobsOf(user string, uid int) string {
	return fmt.Sprintf("%s/%s-%d", s.Jobs(), user, uid)
}

// Log is the stack's log directory.
func (s Stack) Log() string { return LogDir + "/" + s.Cluster }

// Run is the directory of the stack's pid files.
func (s Stack) Run() string { return "/run/slurm-" + s.Cluster }

// Munge gives the paths of the stack's munged.
func (s Stack) Munge() Munge { return Munge(s) }

// Database gives the stack's accounting database.
func (s Stack) Database() Database { return Database(s) }

// Backups is the directory of the stack's backups.
func (s Stack) Backups() string { return BackupDir + "/" + s.Cluster }

// Backup gives the stack's backup of that name, which has the layout BackupName.
func (s Stack) Backup(name string) Backup { return Backup{s, name} }

// Valid checks the name of the cluster, which is part of paths and configuration.
func (s Stack) Valid() error {
	if !cluster.MatchString(s.Cluster) {
		return fmt.Errorf("invalid cluster name %q: want %s", s.Cluster, cluster)
	}
	return nil
}

// Munge gives the paths of the munged of a cluster's control stack.
type Munge struct{ Cluster string }

// Key is the cluster's munge key.
func (m Munge) Key() string { return MungeEtc + "/" + m.Cluster + ".key" }

// Run is the directory of the socket. On a worker it is a link to WorkerMungeRun.
func (m Munge) Run() string { return "/run/munge-" + m.Cluster }

// Socket is munged's socket.
func (m Munge) Socket() string { return m.Run() + "/munge.socket.2" }

// Log is munged's log.
func (m Munge) Log() string { return MungeLog + "/munge-" + m.Cluster + ".log" }

// Seed is munged's seed.
func (m Munge) Seed() string { return MungeLib + "/munge-" + m.Cluster + ".seed" }
