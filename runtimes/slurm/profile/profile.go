// Package profile lists what berth-host allows on a host for Slurm: paths,
// programs, services and accounts. It is compiled into berth-host, so neither Git
// nor a request can extend it. It imports only the standard library and the
// contract, and stays small.
//
// It also defines the paths on a host for the runtime and for berth-host.
//
// It must not know plans, instances or how a cluster is created.
package profile

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"berth/runtimes"
)

// Names of services.
const (
	Munged       = "munged"        // of a control stack; the unit is the cluster
	MungedWorker = "munged-worker" // of a worker; the unit is the cluster
	MariaDB      = "mariadbd"      // one on a controller, for all its stacks
	Slurmdbd     = "slurmdbd"      // the unit is the cluster
	Slurmctld    = "slurmctld"     // the unit is the cluster
	Slurmd       = "slurmd"        // of a worker; the unit is the cluster
)

// Parameters of the Slurmd service. A start needs server and node, a clear the node.
const (
	ParamServer  = "server"  // host:port of the controller
	ParamNode    = "node"    // the node's name
	ParamDevices = "devices" // its device files, with commas; absent: none
)

// IsUID reports whether the account of a user may have a uid. Those below 1000 are the distribution's. 65534, 65535 and
// their forms of 32 bits mean nobody. Accounts are made without lastlog, a file whose size grows with the highest uid.
func IsUID(uid int) bool {
	return uid >= 1000 && uid < 1<<32-2 && uid != 1<<16-2 && uid != 1<<16-1
}

// IsUser reports whether name is that of a user, as long as useradd takes them.
func IsUser(name string) bool { return len(name) <= 32 && userName.MatchString(name) }

// IsName reports whether name has the NameForm.
func IsName(name string) bool { return nodeName.MatchString(name) }

var (
	cluster  = compile(`^[a-z][a-z0-9_]{0,39}$`)
	nodeName = compile(`^` + NameForm + `$`)
	port     = compile(`^[1-9][0-9]{3,4}$`)
	devices  = compile(`^/dev/[A-Za-z0-9_/-]+(,/dev/[A-Za-z0-9_/-]+)*$`)
	hostPart = compile(`^[a-zA-Z0-9]([-a-zA-Z0-9.]{0,251}[a-zA-Z0-9])?$`)
)

// Profile returns the profile of Slurm.
func Profile() runtimes.Profile {
	return runtimes.Profile{
		Name: "slurm",
		Paths: []string{
			InstanceDir, InstanceDir + "/*",
			BackupDir, BackupDir + "/*", BackupDir + "/*/*",
			EtcDir, EtcDir + "/*",
			EtcDir + "/*/slurm.conf", EtcDir + "/*/slurm.conf.previous", EtcDir + "/*/slurmdbd.conf",
			EtcDir + "/*/gres.conf", EtcDir + "/*/cgroup.conf", EtcDir + "/*/topology.conf", EtcDir + "/*/plugstack.conf",
			rotationDir + "/berth-*",
			MungeEtc, MungeEtc + "/*",
			StateDir, StateDir + "/*", StateDir + "/*/state", StateDir + "/*/state/" + stateMark, StateDir + "/*/accounts.cfg",
			DatabaseData, DatabaseInstalled, JobsDir + "/*",
			LogDir, LogDir + "/*",
			MungeLib, MungeLib + "/*",
			MungeLog, MungeLog + "/*",
			"/run/munge-*", "/run/slurm-*", WorkerRunDir, WorkerConfLink, DatabaseRunDir, DatabaseFiles,
			WorkerMungeRun, WorkerMungeSocket, WorkerMungeSocket + ".lock",
		},
		DiskPaths:   []string{InstanceDir, StateDir, DatabaseData, LogDir},
		SecretPaths: []string{MungeEtc + "/*"},
		CheckMake:   checkMake(everything()),
		DerivePaths: derivePaths,
		StatPaths: []string{StateDir + "/*/state/" + savedAssociations, "/dev/**", "/sys/fs/cgroup/*", "/sys/fs/cgroup/*/*",
			JobsDir + "/*/*"},
		HashPaths: []string{ProgramDir, ProgramDir + "/*", workerConfCache + "/*"},
		Programs:  programs(),
		Services: map[string]func(string, map[string]string) (runtimes.ServiceSpec, error){
			Munged: ofStack(munged), MungedWorker: ofStack(mungedWorker), MariaDB: mariadbd,
			Slurmdbd: ofStack(slurmdbd), Slurmctld: ofStack(slurmctld), Slurmd: slurmd,
		},
		UserDirs: JobsDir,
		IsUID:    IsUID,
	}
}

// ofStack returns a service of a cluster, which takes no parameters.
func ofStack(spec func(Stack) runtimes.ServiceSpec) func(string, map[string]string) (runtimes.ServiceSpec, error) {
	return func(unit string, params map[string]string) (runtimes.ServiceSpec, error) {
		s := Stack{unit}
		if len(params) > 0 {
			return runtimes.ServiceSpec{}, fmt.Errorf("takes no parameters")
		}
		if err := s.Valid(); err != nil {
			return runtimes.ServiceSpec{}, err
		}
		return spec(s), nil
	}
}

func munged(s Stack) runtimes.ServiceSpec {
	spec := mungedSpec(s.Munge().Key(), s.Munge().Run(), s.Munge().Log(), s.Munge().Seed())
	spec.RunDirs[0].Own = true
	return spec
}

// mungedWorker is munged at the default path of its clients. The link maps the path
// in the controller's slurm.conf to it: without the link slurmd exits 0 and never
// registers. Each start makes the link, as /run is empty after a boot.
func mungedWorker(s Stack) runtimes.ServiceSpec {
	spec := mungedSpec(WorkerMungeKey, WorkerMungeRun, WorkerMungeLog, WorkerMungeSeed)
	spec.Links = []runtimes.MakeLink{{Path: s.Munge().Run(), Target: "munge"}}
	spec.Files = append(spec.Files, WorkerMungeSocket, WorkerMungeSocket+".lock")
	return spec
}

func mungedSpec(key, run, log, seed string) runtimes.ServiceSpec {
	pid := run + "/munged.pid"
	return runtimes.ServiceSpec{
		Path: "/usr/sbin/munged",
		Args: []string{
			"--key-file=" + key, "--socket=" + run + "/munge.socket.2", "--pid-file=" + pid,
			"--log-file=" + log, "--seed-file=" + seed, "--num-threads=2",
		},
		User: MungeUser, PIDFile: pid, Forks: true, LogFile: log, Started: "Starting munge",
		RunDirs: []runtimes.MakeDir{{Path: run, Mode: 0o755, Owner: MungeUser, Group: MungeUser}},
		Files:   []string{seed}, DistributionUnit: "munge",
	}
}

// mariadbd listens on a Unix socket only and authenticates the account of the peer,
// without any password: root administers, slurm uses the databases granted to it.
func mariadbd(unit string, params map[string]string) (runtimes.ServiceSpec, error) {
	if unit != "" || len(params) > 0 {
		return runtimes.ServiceSpec{}, fmt.Errorf("has no units and takes no parameters")
	}
	return runtimes.ServiceSpec{
		Path: "/usr/sbin/mariadbd",
		Args: []string{
			"--no-defaults", "--datadir=" + DatabaseData, "--socket=" + DatabaseSocket,
			"--pid-file=" + DatabaseData + "/mariadbd.own.pid", "--log-error=" + DatabaseLog,
			// No statement reads or writes files elsewhere.
			"--secure-file-priv=" + DatabaseFiles,
			"--skip-networking", "--performance-schema=OFF",
			// The settings that slurmdbd needs, with little memory. With snapshot isolation, the
			// default from MariaDB 11.6 on, slurmdbd 26.05 ends when two of its transactions
			// meet. Loose: earlier releases do not know it.
			"--loose-innodb-snapshot-isolation=OFF",
			"--innodb-buffer-pool-size=64M", "--innodb-log-file-size=" + databaseLogSize, "--innodb-lock-wait-timeout=900",
			"--max-allowed-packet=16M",
		},
		User: DatabaseUser, PIDFile: DatabaseRunDir + "/mariadbd.pid", LogFile: DatabaseLog, Started: "as process",
		RunDirs: []runtimes.MakeDir{
			{Path: DatabaseRunDir, Mode: 0o755, Owner: DatabaseUser, Group: DatabaseUser, Own: true},
			{Path: DatabaseFiles, Mode: 0o500, Owner: DatabaseUser, Group: DatabaseUser, Own: true},
		},
		DistributionUnit: "mariadb",
		Unit:             runtimes.UnitSpec{Notify: true, NeverKill: true},
	}, nil
}

func slurmdbd(s Stack) runtimes.ServiceSpec {
	return runtimes.ServiceSpec{
		Path: "/usr/sbin/slurmdbd",
		// The client library reads the path of the socket from the environment.
		Env:  []string{"SLURM_CONF=" + s.DBDConf(), "MYSQL_UNIX_PORT=" + DatabaseSocket},
		User: SlurmUser, PIDFile: s.Run() + "/slurmdbd.pid", Forks: true, LogFile: s.Log() + "/slurmdbd.log", Started: "slurmdbd version",
		RunDirs:          runDirs(s),
		DistributionUnit: "slurmdbd",
		Unit: runtimes.UnitSpec{
			After: []runtimes.ServiceName{{Name: Munged, Unit: s.Cluster}, {Name: MariaDB}},
			// It daemonizes before it connects to the database. slurmctld starts after it, and
			// does not wait for a conversion of the database, which may take hours.
			Ready: "port=$(sed -n s/^DbdPort=//p " + s.DBDConf() +
				"); until (: </dev/tcp/127.0.0.1/$port) 2>/dev/null || ((SECONDS > 60)); do sleep 0.2; done",
			// A kill during the conversion of its database, after an upgrade, damages it.
			NeverKill: true,
		},
	}
}

func slurmctld(s Stack) runtimes.ServiceSpec {
	return runtimes.ServiceSpec{
		Path: "/usr/sbin/slurmctld",
		Env:  []string{"SLURM_CONF=" + s.Conf()},
		User: SlurmUser, PIDFile: s.Run() + "/slurmctld.pid", Forks: true, LogFile: s.Log() + "/slurmctld.log",
		Started:          "slurmctld version",
		RunDirs:          runDirs(s),
		DistributionUnit: "slurmctld",
		Unit: runtimes.UnitSpec{After: []runtimes.ServiceName{{Name: Munged, Unit: s.Cluster},
			{Name: Slurmdbd, Unit: s.Cluster}}},
	}
}

// runDirs are the directories that a stack's daemons of Slurm need at each start.
func runDirs(s Stack) []runtimes.MakeDir {
	return []runtimes.MakeDir{{Path: s.Run(), Mode: 0o755, Owner: SlurmUser, Group: SlurmUser, Own: true}}
}

// slurmd is a node of a configless cluster. Without a server the spec is not for a start.
func slurmd(unit string, params map[string]string) (runtimes.ServiceSpec, error) {
	if err := (Stack{unit}).Valid(); err != nil {
		return runtimes.ServiceSpec{}, err
	}
	spec := runtimes.ServiceSpec{
		Path:    "/usr/sbin/slurmd",
		PIDFile: WorkerPID, Forks: true, LogFile: WorkerLog, Started: "slurmd version",
		RunDirs: []runtimes.MakeDir{{Path: WorkerRunDir, Mode: 0o755}},
		Files:   []string{WorkerConfLink}, DistributionUnit: "slurmd",
		Unit: runtimes.UnitSpec{After: []runtimes.ServiceName{{Name: MungedWorker, Unit: unit}}, RunsJobs: true},
	}
	valid := map[string]func(string) bool{ParamServer: isServer, ParamNode: nodeName.MatchString, ParamDevices: isDevices}
	for _, name := range slices.Sorted(maps.Keys(params)) {
		if valid[name] == nil {
			return spec, fmt.Errorf("unknown parameter %q", name)
		}
		if !valid[name](params[name]) {
			return spec, fmt.Errorf("parameter %s: invalid value %q", name, params[name])
		}
	}
	node, server := params[ParamNode], params[ParamServer]
	if node == "" {
		if len(params) > 0 {
			return spec, fmt.Errorf("parameter %s is missing", ParamNode)
		}
		return spec, nil
	}
	// Where a host may have several slurmd, as in Debian's build, or where it may not.
	spec.Unit.Scopes = []string{node + "_slurmstepd.scope", "slurmstepd.scope"}
	if list := params[ParamDevices]; list != "" {
		spec.Devices = strings.Split(list, ",")
	}
	if server != "" {
		spec.Args = []string{"-N", node, "--conf-server", server}
	}
	return spec, nil
}

func isAddress(s string) bool {
	a, err := netip.ParseAddr(s)
	return err == nil && a.Zone() == "" || err != nil && hostPart.MatchString(s)
}

func isServer(s string) bool {
	i := strings.LastIndexByte(s, ':')
	return i > 0 && isAddress(strings.Trim(s[:i], "[]")) && port.MatchString(s[i+1:])
}

func isDevices(s string) bool { return len(s) <= 4096 && devices.MatchString(s) }
