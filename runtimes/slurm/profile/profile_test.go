package profile_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/runtimes"
	"berth/runtimes/slurm/profile"
)

func slurmdParams() map[string]string {
	return map[string]string{profile.ParamServer: "10.77.0.10:20001", profile.ParamNode: "gpu-1"}
}

func TestSlurmdArguments(t *testing.T) {
	spec, err := profile.Profile().Services[profile.Slurmd]("physics", slurmdParams())
	require.NoError(t, err)
	require.Equal(t, []string{"-N", "gpu-1", "--conf-server", "10.77.0.10:20001"}, spec.Args)
	spec, err = profile.Profile().Services[profile.Slurmd]("physics", nil)
	require.NoError(t, err)
	require.Empty(t, spec.Args)
	require.Empty(t, spec.Unit.Scopes)
	// A clear knows the node alone.
	spec, err = profile.Profile().Services[profile.Slurmd]("physics", map[string]string{profile.ParamNode: "gpu-1"})
	require.NoError(t, err)
	require.Empty(t, spec.Args)
	require.Contains(t, spec.Unit.Scopes, "gpu-1_slurmstepd.scope")
}

func TestServicesRefuseInvalidParameters(t *testing.T) {
	services := profile.Profile().Services
	for _, hostile := range []string{"", "a b", "../x", "a/b", "x\n", "A", "-x", strings.Repeat("a", 41), "a=b", "a#b", "\x00"} {
		for _, name := range []string{profile.Munged, profile.MungedWorker, profile.Slurmdbd, profile.Slurmctld, profile.Slurmd} {
			_, err := services[name](hostile, nil)
			require.Error(t, err, "%s %q", name, hostile)
		}
	}
	for param := range slurmdParams() {
		for _, hostile := range []string{"x y", "1 Gres=gpu:9", "a\nb", "$(id)", "--conf", "#", "a,,b"} {
			p := slurmdParams()
			p[param] = hostile
			_, err := services[profile.Slurmd]("physics", p)
			require.Error(t, err, "%s=%q", param, hostile)
		}
	}
	p := slurmdParams()
	delete(p, profile.ParamNode)
	_, err := services[profile.Slurmd]("physics", p)
	require.ErrorContains(t, err, "parameter node is missing")
	for _, hostile := range []string{"", "/etc/shadow", "/dev/../etc/shadow", "/dev/a b", "/dev/a,", ",/dev/a", "/dev/a\n/dev/b", "/dev/$x",
		"/dev/" + strings.Repeat("a", 5000)} {
		p := slurmdParams()
		p[profile.ParamDevices] = hostile
		_, err := services[profile.Slurmd]("physics", p)
		require.Error(t, err, "devices=%q", hostile)
	}
	p = slurmdParams()
	p["conf"] = "CPUs=1"
	_, err = services[profile.Slurmd]("physics", p)
	require.ErrorContains(t, err, "unknown parameter")
	_, err = services[profile.MariaDB]("other", nil)
	require.Error(t, err)
}

func TestProgramsRefuseOtherArguments(t *testing.T) {
	programs := profile.Profile().Programs
	for _, c := range []struct {
		program, args string
		allowed       bool
	}{
		{"scontrol", "ping", true},
		{"scontrol", "reconfigure", true},
		{"scontrol", "show config", true},
		{"scontrol", "update nodename=w1,w2 state=drain reason=berth:abc", true},
		{"scontrol", "update nodename=w1 state=undrain", true},
		{"scontrol", "update nodename=w1 comment=berth:rack=r1,row=2", true},
		{"scontrol", "update nodename=w1 comment=mine", false},
		{"scontrol", "delete nodename=w1", false},
		{"scontrol", "delete partitionname=quick", true},
		{"scontrol", "update jobid=12 partition=main,long", true},
		{"scontrol", "update jobid=12 partition=main priority=9", false},
		{"scontrol", "", false},
		{"scontrol", "shutdown", false},
		{"scontrol", "token username=root", false},
		{"scontrol", "update jobid=1 state=x", false},
		{"scontrol", "delete partition=main", false},
		{"scontrol", "update nodename=ALL state=drain", false},
		{"scontrol", "update nodename=All state=drain", false},
		{"scontrol", "update nodename=gpu01.cs.example.org,slurm_node1 state=drain", true},
		{"scontrol", "update nodename=w[1-9] state=drain", false},
		{"scontrol", "create reservation reservationname=berth-a starttime=now endtime=uts1900000000 nodes=ALL users=root " +
			"flags=MAINT,IGNORE_JOBS", false},
		{"scontrol", "create reservation reservationname=berth-a starttime=now endtime=uts1900000000 nodes=GPU01.cs users=root " +
			"flags=MAINT,IGNORE_JOBS", true},
		{"scontrol", "delete partitionname=Mem128", true},
		{"sacctmgr", "-i modify user where name=Root set adminlevel=None", false},
		{"sacctmgr", "-i add user first.last account=phys_lab.2 cluster=c1", true},
		{"sacctmgr", "-i add user first,-i account=x cluster=c1", false},
		{"id", "-u first.last", true},
		{"id", "-u 0", false},
		{"id", "-Gn --", false},
		{"sacctmgr", "-i load /etc/shadow", false},
		{"sacctmgr", "-i load file=/etc/passwd", false},
		{"sacctmgr", "-i load file=/var/lib/slurm/c1/accounts.cfg", true},
		{"sacctmgr", "-i load file=/var/lib/slurm/../../etc/accounts.cfg", false},
		{"sacctmgr", "-i add user a,b account=x cluster=c1", true},
		{"sacctmgr", "-i add qos a,b flags=DenyOnLimit preempt=c maxtresperaccount=cpu=1", true},
		{"sacctmgr", "-i add qos a name=b", false},
		{"sacctmgr", "-i add account x cluster=c1 parent=root description=x organization=berth qos=x defaultqos=x grptres=cpu=1", true},
		{"sacctmgr", "-i add account x cluster=c1 parent=root description=x organization=berth name=root", false},
		{"sacctmgr", "-i add account x cluster=c1 parent=root description=x organization=berth cluster=c2", false},
		{"sacctmgr", "-i add user root account=x cluster=c1", false},
		{"sacctmgr", "-i add user a account=x cluster=c1 adminlevel=Administrator", false},
		{"sacctmgr", "-i modify user where name=a set adminlevel=None", true},
		{"sacctmgr", "-i modify user where name=a,root set adminlevel=None", false},
		{"sacctmgr", "-i modify user where name=a set adminlevel=Administrator", false},
		{"sacctmgr", "-i modify user where name=a cluster=c1 set admin=Operator", false},
		{"sacctmgr", "-i modify user where name=a cluster=c1 set maxsubmitjobs=0", true},
		{"sacctmgr", "-i modify user where name=a cluster=c1 set maxsubmitjobs=0 adm=Operator", false},
		{"sacctmgr", "-i modify user where name=a set maxsubmitjobs=0", false},
		{"sacctmgr", "-i modify account where name=root cluster=c1 set qos=normal,high defaultqos=-1", true},
		{"sacctmgr", "-i modify account where name=x cluster=c1 set name=y", false},
		{"sacctmgr", "-i delete account where name=root cluster=c1", false},
		{"sacctmgr", "-i delete account where name=x,root cluster=c1", false},
		{"sacctmgr", "-i delete account where cluster=c1", false},
		{"sacctmgr", "-i delete user where name=a", false},
		{"sacctmgr", "-i delete user where cluster=c1", false},
		{"sacctmgr", "-i delete cluster where name=c1", false},
		{"sacctmgr", "-i add coordinator names=a account=x", false},
		{"sacctmgr", "-i delete coordinator where name=a account=x", true},
		{"sacctmgr", "-i modify cluster where name=c1 set qos=normal", false},
		{"sacctmgr", "-i modify qos where name=high set priority=5 flags=DenyOnLimit", true},
		{"sacctmgr", "-i modify qos set priority=5", false},
		{"sacctmgr", "-i list assoc cluster=c1 wopl format=user,qos", true},
		{"sacctmgr", "-i -P list assoc cluster=c1 wopl format=user,qos", true},
		{"sacctmgr", "-i list transactions format=user", false},
		{"scontrol", "update jobid=12 qos=normal", true},
		{"scontrol", "update jobid=12 qos=normal,x", false},
		{"scontrol", "show assoc_mgr flags=qos", true},
		{"sacctmgr", "add user a account=x", false},
		{"sacctmgr", "-i dump c1 file=/etc/cron.d/x", false},
		{"sacctmgr", "-i -n -P list assoc cluster=c1 format=user", false},
		{"sacctmgr", "-i -n -P list cluster format=cluster", true},
		{"sacctmgr", "-P show runaway cluster=c1 format=ID", true},
		{"sacctmgr", "-i -P show runaway cluster=c1 format=ID", true},
		{"sacctmgr", "-i modify job where cluster=c1 jobid=7,8 set admincomment=berth:lost", true},
		{"sacctmgr", "-i modify job where cluster=c1 jobid=7 set admincomment=other", false},
		{"sacctmgr", "-i modify job where cluster=c1 set admincomment=berth:lost", false},
		{"sacctmgr", "-i -P show runaway cluster=c1 format=ID,Name", false},
		{"sacctmgr", "-i show runaway", false},
		{"sacctmgr", "-i -P show runaway cluster=../c1 format=ID", false},
		{"sacctmgr", "-i -n -P show user cluster=c1 format=ID", false},
		{"sinfo", "--json", true},
		{"sinfo", "-o x", false},
		{"squeue", "--json --all", true},
		{"squeue", "--json=v0.0.42 --all", true},
		{"squeue", "--json=v0.0.43 --all", false},
		{"scontrol", "show nodes --json=v0.0.42", true},
		{"scontrol", "show nodes --json=list", false},
		{"scontrol", "-V", false},
		{"sacct", "--json=v0.0.42 --allusers", true},
		{"slurmctld", "-V", true},
		{"slurmctld", "", false},
		{"slurmctld", "-V -D", false},
		{"slurmd", "-V", true},
		{"slurmd", "-Z", false},
		{"squeue", "--json --nodelist=w1", true},
		{"squeue", "--all", false},
		{"squeue", "--json --format=%j", false},
		{"id", "-u alice", true},
		{"id", "-Gn alice", true},
		{"id", "-u alice bob", true},
		{"id", "-u alice -G", false},
		{"id", "-Gn alice bob", false},
		{"scontrol", "show assoc_mgr flags=assoc", true},
		{"scontrol", "show assoc_mgr", false},
		{"id", "-u -G", false},
		{"id", "alice", false},
		{"scontrol", "update partitionname=main state=inactive", true},
		{"scontrol", "update partitionname=main state=inactive maxtime=1", false},
		{"sbatch", "--parsable --get-user-env --export-file=/proc/self/fd/3 --gres=gpu:1", true},
		{"sbatch", "--parsable --get-user-env --export-file=/proc/self/fd/3 --job-name=a..b --chdir=/data/v1..2", true},
		{"sbatch", "--parsable --get-user-env --export-file=/proc/self/fd/3 --output=slurm-%A_%a.out", true},
		{"sbatch", "--parsable --get-user-env --export-file=/proc/self/fd/3 --propagate=ALL", false},
		{"sbatch", "--parsable --get-user-env --export-file=/proc/self/fd/3 --chdir=/data/../etc", false},
		{"sbatch", "--parsable --get-user-env --export-file=/proc/self/fd/3 --chdir=..", false},
		{"sbatch", "--parsable --get-user-env --export-file=/proc/self/fd/3 --output=/data/..", false},
		{"sbatch", "--parsable --get-user-env --export-file=/proc/self/fd/3 --uid=0", false},
		{"sbatch", "--parsable --get-user-env --export-file=/proc/self/fd/3 --gid=0", false},
		{"sbatch", "--parsable --get-user-env --export-file=/proc/self/fd/3 /tmp/script", false},
		{"sbatch", "--parsable --get-user-env --export-file=/proc/self/fd/3 --export=ALL", true},
		{"sbatch", "--parsable --get-user-env --export-file=/proc/self/fd/3 --export=LD_PRELOAD=/x", false},
		{"sbatch", "--parsable --get-user-env --export-file=/proc/self/fd/3 --export-file=/etc/shadow", false},
		{"sbatch", "--parsable --get-user-env --export-file=/proc/self/fd/3 --wrap=x", false},
		{"sbatch", "--parsable --get-user-env --export-file=/proc/self/fd/3 --bbf=/etc/shadow", false},
		{"sbatch", "--parsable --get-user-env", false},
		{"munge", "--no-input --output=/dev/null --socket=/run/munge-c1/munge.socket.2", true},
		{"munge", "--no-input --output=/dev/null --socket=/run/munge/munge.socket.2", true},
		{"munge", "--no-input --output=/dev/null --socket=/run/munge/../a", false},
		{"munge", "--no-input --output=/etc/a --socket=/run/munge/munge.socket.2", false},
		{"munge", "--no-input", false},
		{"scancel", "12 13", true},
		{"scancel", "--user=root", false},
		{"scancel", "--user=ada --account=physics.lhc 12", true},
		{"scancel", "--user=ada --account=physics.lhc 12_3", false}, // ends all tasks that wait
		{"scancel", "12_3", true},
		{"scancel", "--user=ada --account=physics.lhc", false},
		{"scancel", "--user=ada 12 13", false},
		{"squeue", strings.Join(profile.QueueJobsArgs("abcdefgh", "--user=ada", "--jobs=12"), " "), true},
		{"squeue", strings.Join(profile.QueueJobsArgs("|"), " "), false},
		{"squeue", strings.Join(profile.QueueJobsArgs("abcdefgh", "--format=%j"), " "), false},
		{"squeue", strings.Replace(strings.Join(profile.QueueJobsArgs("abcdefgh"), " "), "Name:abcdefgh", "Name:abcdefgx", 1), false},
		{"sacct", strings.Join(profile.AccountedJobsArgs("abcdefgh", "--accounts=physics.lhc"), " "), true},
		{"sacct", strings.Join(profile.AccountedJobsArgs("abcdefgh", "--file=/etc/shadow"), " "), false},
		{"squeue", strings.Join(profile.QueueFilesArgs("abcdefgh", "--jobs=12_3"), " "), true},
		{"squeue", strings.Join(profile.QueueFilesArgs("|", "--jobs=12_3"), " "), false},
		{"squeue", strings.Join(profile.QueueIDsArgs("--user=ada"), " "), true},
		{"squeue", strings.Join(profile.QueueIDsArgs("--format=%j"), " "), false},
		{"squeue", strings.Join(profile.QueueJobsArgs("abcdefgh", "--jobs=12,13,14"), " "), true},
		{"sacct", strings.Join(profile.AccountedFilesArgs("abcdefgh", "--jobs=12_7,13"), " "), true},
		{"sacct", strings.Join(profile.AccountedIDsArgs("--user=ada", "--starttime=uts100"), " "), true},
		{"sacct", strings.Join(profile.AccountedIDsArgs("--format=JobName"), " "), false},
		{"find", "-P /tmp/slurm-1.out -maxdepth 0 -type f -uid 4301 -printf %s", true},
		{"find", "-P /tmp/slurm-1.out -maxdepth 0 -type f -printf %s", false},
		{"find", "-L /tmp/slurm-1.out -maxdepth 0 -type f -uid 4301 -printf %s", false},
		{"find", "-P /tmp/../etc/x -maxdepth 0 -type f -uid 4301 -printf %s", false},
		{"find", "-P /tmp/a -maxdepth 0 -type f -uid 4301 -delete", false},
		{"find", "-P /tmp/a -maxdepth 0 -type f -uid -1 -delete", false},
		{"find", "-P -delete -maxdepth 0 -type f -printf %s", false},
		{"dd", "if=/tmp/slurm-1.out iflag=nofollow,nonblock,fullblock,skip_bytes,count_bytes status=none bs=64K skip=0 count=100", true},
		{"dd", "if=/tmp/../etc/x iflag=nofollow,nonblock,fullblock,skip_bytes,count_bytes status=none bs=64K skip=0 count=100", false},
		{"dd", "if=/tmp/a iflag=fullblock status=none bs=64K skip=0 count=100", false},
		{"dd", "if=/tmp/a of=/tmp/b iflag=nofollow status=none skip=0 count=100", false},
		{"scancel", "", false},
		{"sacct", "--json --allusers", true},
		{"sacct", "--allusers --parsable2 --format=JobIDRaw,State --starttime=uts1577836800 --accounts=physics.lhc", true},
		{"sacct", "--starttime=now-1hour", false},
		{"sacct", "--truncate --jobs=7", true},
		{"sacct", "--truncate --jobs=7,12,9", true},
		{"sacct", "--truncate --jobs=7,12_3", false},
		{"sreport", "--noheader --parsable2 -t Seconds -T cpu,gres/gpu cluster Utilization clusters=c " +
			"format=TresName,Reported,Allocated,Down,PlannedDown start=uts1790812800 end=uts1790899200", true},
		{"sreport", "--noheader --parsable2 -t Seconds cluster AccountUtilizationByUser clusters=c format=Account,Login,Used " +
			"start=uts1790812800 end=uts1790899200", true},
		{"sreport", "cluster Utilization", false},
		{"sreport", "--noheader --parsable2 -t Seconds -T all cluster Utilization clusters=c " +
			"format=TresName,Reported,Allocated,Down,PlannedDown start=uts1790812800 end=uts1790899200", false},
		{"sreport", "--noheader --parsable2 -t Seconds user TopUsage clusters=c format=Login,Used start=uts1790812800 end=uts1790899200",
			false},
		{"sacct", "--file=/etc/shadow", false},
		{"mariadb", strings.Join(profile.SQLArgs(), " "), true},
		{"mariadb", "--user=root", false},
		{"mariadb-install-db", "--datadir=/etc", false},
	} {
		err := programs[c.program].Check(strings.Fields(c.args))
		if c.allowed {
			require.NoError(t, err, "%s %s", c.program, c.args)
		} else {
			require.Error(t, err, "%s %s", c.program, c.args)
		}
	}
	update := func(reason string) error {
		return programs["scontrol"].Check([]string{"update", "nodename=w1", "state=drain", "reason=" + reason})
	}
	require.NoError(t, update("bad fan, see #12"))
	for _, hostile := range []string{"", "a\nb", "a\"b", "$(id)", "é", strings.Repeat("a", 201)} {
		require.Error(t, update(hostile), "%q", hostile)
	}
	for name, p := range programs {
		require.True(t, strings.HasPrefix(p.Path, "/usr/"), name)
		require.NotNil(t, p.Check, name)
		require.Error(t, p.Check([]string{"; rm -rf /"}), name)
	}
}

func TestOnlyReadingCommandsNeedNoEpoch(t *testing.T) {
	programs := profile.Profile().Programs
	for _, c := range []struct {
		program, args string
		reads         bool
	}{
		{"scontrol", "ping", true},
		{"scontrol", "show config", true},
		{"scontrol", "reconfigure", false},
		{"scontrol", "update nodename=show state=drain", false},
		{"sacctmgr", "-i -n -P list assoc cluster=c1", true},
		{"sacctmgr", "-P show runaway cluster=c1 format=ID", true},
		{"sacctmgr", "-i -P show runaway cluster=c1 format=ID", false},
		{"sacctmgr", "-i add user list account=x", false},
		{"sinfo", "--json", true},
		{"squeue", "--json", true},
		{"id", "-u alice", true},
	} {
		require.Equal(t, c.reads, programs[c.program].Reads(strings.Fields(c.args)), "%s %s", c.program, c.args)
	}
	cluster := profile.Database{Cluster: "c1"}
	require.True(t, programs["mariadb"].Reads(cluster.WritableArgs()))
	for _, args := range [][]string{profile.SQLArgs(), cluster.RestoreArgs(), append(cluster.WritableArgs(), "--database=mysql")} {
		require.False(t, programs["mariadb"].Reads(args), args)
	}
	for _, name := range []string{"sbatch", "scancel", "mariadb-install-db"} {
		require.Nil(t, programs[name].Reads, name)
	}
}

func TestEveryPathOfAStackIsAllowed(t *testing.T) {
	s := profile.Stack{Cluster: "physics_lhc_1a2b3c4d"}
	require.NoError(t, s.Valid())
	p := profile.Profile()
	for _, path := range []string{
		s.Record(), s.Etc(), s.Conf(), s.DBDConf(), s.Lib(), s.State(), s.Accounts(), s.Log(), s.Run(),
		s.Munge().Key(), s.Munge().Run(), s.Munge().Log(), s.Munge().Seed(),
	} {
		require.True(t, slices.ContainsFunc(p.Paths, func(pattern string) bool { return within(pattern, path) }), path)
	}
}

// Tools load the libraries that a configuration names as root, so only a checked
// configuration is allowed.
func TestProgramsAcceptOnlyCheckedConfiguration(t *testing.T) {
	programs := profile.Profile().Programs
	for name, p := range programs {
		if p.Env == nil {
			continue
		}
		for variable, pattern := range p.Env {
			require.Contains(t, []string{"SLURM_CONF", "SLURM_TIME_FORMAT", "SLURM_BITSTR_LEN"}, variable, name)
			require.False(t, pattern.MatchString("x"), "%s of %s", variable, name)
		}
		conf := p.Env["SLURM_CONF"]
		require.True(t, conf.MatchString("/etc/slurm/physics_1a2b3c4d/slurm.conf"), name)
		require.Equal(t, name != "sbatch", conf.MatchString("/run/slurm/conf/slurm.conf"), name)
		for _, hostile := range []string{
			"", "/tmp/slurm.conf", "/etc/slurm/slurm.conf", "/etc/slurm/c1/slurm.conf.previous", "/etc/slurm/c1/slurmdbd.conf",
			"/etc/slurm/../slurm.conf",
			"/etc/slurm/c1/slurm.conf\n", "/var/lib/slurm/c1/slurm.conf", "/var/log/slurm/c1/slurm.conf", "/etc/slurm/c1/x/slurm.conf",
			"/run/slurm/slurm.conf",
		} {
			require.False(t, conf.MatchString(hostile), "%s %q", name, hostile)
		}
	}
	require.True(t, programs["sbatch"].AsPerson, "a script's own options must not be obeyed with root's rights")
}

func TestSQLClientAcceptsOnlyKnownStatements(t *testing.T) {
	check := profile.Profile().Programs["mariadb"].CheckStdin
	d := profile.Database{Cluster: "physics_1a2b3c4d"}
	for _, sent := range []string{
		profile.PingSQL, d.CreateSQL(), d.GrantSQL(), d.DropSQL(), d.CreateRestoreSQL(), d.DropRestoreSQL(), d.CountSQL(false),
		d.CountSQL(true),
	} {
		require.NoError(t, check([]byte(sent)), sent)
		for _, more := range []string{"\\e", "\\! id", "system id", "SELECT LOAD_FILE('/etc/shadow');", "\n"} {
			require.Error(t, check([]byte(sent+more)), "%s%s", sent, more)
			require.Error(t, check([]byte(more+sent)), "%s%s", more, sent)
		}
	}
	require.NoError(t, check(nil)) // no statement runs
	for _, hostile := range []string{
		"\\e\n", "SELECT 1 INTO OUTFILE '/var/lib/mysql/x';\n",
		profile.Database{Cluster: "x`; DROP"}.DropSQL(), profile.Database{Cluster: ""}.DropSQL(),
	} {
		require.Error(t, check([]byte(hostile)), hostile)
	}
	spec, err := profile.Profile().Services[profile.MariaDB]("", nil)
	require.NoError(t, err)
	require.Contains(t, spec.Args, "--secure-file-priv="+spec.RunDirs[1].Path)
}

func TestFilesNeedKnownPathModeOwnerAndContent(t *testing.T) {
	check := profile.Profile().CheckMake
	conf := func(text string) runtimes.Making {
		return runtimes.Making{Kind: "file", Path: "/etc/slurm/c1/slurm.conf", Mode: 0o644, Data: []byte(text)}
	}
	for _, fine := range []string{
		"", "# a comment\n", "ClusterName=c1\nMailProg=/bin/true\n", "PartitionName=main Nodes=ALL State=UP MaxTime=30 Default=YES\n",
		"HealthCheckProgram=/usr/local/libexec/berth-slurm/check\n", "SlurmctldHost=ctl(10.77.0.10)\n",
		"StateSaveLocation=/var/lib/slurm/c1/state\n",
	} {
		require.NoError(t, check(conf(fine)), fine)
	}
	require.NoError(t, check(conf("NodeName=gpu01.cs.example.org NodeAddr=10.0.0.1 CPUs=1 RealMemory=1 "+
		"Gres=gpu:nvidia_geforce_rtx_3090:1 Feature=worker,gpu,nvidia_geforce_rtx_3090\n"+
		"PartitionName=std.q Nodes=slurm_node1 State=UP MaxTime=30\n")))
	for _, hostile := range []string{
		"PartitionName=a,b Nodes=ALL State=UP MaxTime=30\n", "PartitionName=-a State=UP MaxTime=30\n",
		"NodeName=w[1-9] NodeAddr=10.0.0.1 CPUs=1 RealMemory=1 Feature=worker\n",
		"PluginDir=/tmp\n", "plugindir=/tmp\n", " PluginDir=/tmp\n", "Prolog=/tmp/x\n", "PlugStackConfig=/tmp/x\n", "Include /tmp/x\n",
		"include /tmp/x\n",
		"HealthCheckProgram=/tmp/x\n", "HealthCheckProgram=/usr/local/libexec/berth-slurm/../x\n",
		"HealthCheckProgram=/usr/local/libexec/berth-slurm/a/b\n",
		"MailProg=/tmp/x\n", "ClusterName=c2\n", "SlurmUser=root\n", "StateSaveLocation=/etc\n", "AuthType=auth/none\n",
		"SlurmdPort=6818 PluginDir=/tmp\n", "# \\\nPluginDir=/tmp\n", "#\rPluginDir=/tmp\n", "SlurmdPort=6818\x00\n", "DownNodes=x\n",
		"PartitionName=main Nodes=ALL State=UP MaxTime=30 AllowGroups=x\n",
	} {
		require.Error(t, check(conf(hostile)), "%q", hostile)
	}
	bad := conf("ClusterName=c1\n")
	bad.Mode = 0o777
	require.ErrorContains(t, check(bad), "mode")
	bad = conf("ClusterName=c1\n")
	bad.Owner, bad.Group = "alice", "alice"
	require.ErrorContains(t, check(bad), "alice")
	for _, m := range []runtimes.Making{
		{Kind: "file", Path: "/etc/slurm/slurm.conf", Mode: 0o644},
		{Kind: "file", Path: "/etc/slurm/c1/job_container.conf", Mode: 0o644},
		{Kind: "file", Path: "/etc/slurm/c1/plugstack.conf", Mode: 0o644, Data: []byte("required /tmp/x.so\n")},
		{Kind: "file", Path: "/etc/slurm/c1/gres.conf", Mode: 0o644, Data: []byte("NodeName=n Name=gpu Type=a File=/etc/shadow\n")},
		{Kind: "file", Path: "/var/lib/slurm/c1/accounts.cfg", Mode: 0o600,
			Data: []byte("User - 'eve':DefaultAccount='members':AdminLevel='Administrator':Fairshare=1\n")},
		{Kind: "file", Path: "/var/lib/slurm/c1/accounts.cfg", Mode: 0o600, Data: []byte("Cluster - 'c2':Fairshare=1:QOS='normal'\n")},
		{Kind: "file", Path: "/etc/slurm/c1/slurmdbd.conf", Mode: 0o600, Owner: "slurm", Group: "slurm",
			Data: []byte("StorageUser=root\n")},
		{Kind: "file", Path: "/etc/munge/c1.key", Mode: 0o400, Owner: "munge", Group: "munge", Data: []byte("known")},
		{Kind: "secret", Path: "/etc/slurm/c1/slurm.conf", Mode: 0o400, Owner: "munge", Group: "munge"},
		{Kind: "dir", Path: "/etc/slurm/c1", Mode: 0o777},
		{Kind: "dir", Path: "/etc/slurm/c1/slurm.conf", Mode: 0o755},
		{Kind: "link", Path: "/etc/slurm/c1/slurm.conf"},
	} {
		require.Error(t, check(m), "%+v", m)
	}
	key := runtimes.Making{Kind: "file", Path: "/etc/munge/c1.key", Mode: 0o400, Owner: "munge", Group: "munge"}
	key.Data = make([]byte, profile.MungeKeySize)
	require.NoError(t, check(key))
	require.NoError(t, check(runtimes.Making{Kind: "file", Path: "/etc/slurm/c1/gres.conf", Mode: 0o644,
		Data: []byte("NodeName=n Name=gpu Type=a File=/dev/nvidia0\n")}))
}

// within matches a path as the documentation of runtimes.Profile says.
func within(pattern, path string) bool {
	pp, sp := strings.Split(pattern, "/"), strings.Split(path, "/")
	for i, want := range pp {
		if want == "**" {
			return len(sp) > i
		}
		if i >= len(sp) {
			return false
		}
		pre, post, star := strings.Cut(want, "*")
		if !star && want != sp[i] || star &&
			(!strings.HasPrefix(sp[i], pre) || !strings.HasSuffix(sp[i], post) || len(sp[i]) <= len(pre)+len(post)) {
			return false
		}
	}
	return len(pp) == len(sp)
}

func TestBackupProgramsAcceptOnlyTheFilesOfAStack(t *testing.T) {
	programs := profile.Profile().Programs
	s, name := profile.Stack{Cluster: "physics_1a2b3c4d"}, "20261123T020000Z"
	for program, forms := range map[string][][]string{
		"mariadb-dump": {s.Backup(name).DumpArgs()},
		"tar":          {s.Backup(name).ArchiveArgs(), s.Backup(name).ListArchiveArgs()},
		"mariadb":      {s.Database().RestoreArgs(), s.Database().WritableArgs()},
	} {
		check := programs[program].Check
		for _, args := range forms {
			require.NoError(t, check(args), "%s %s", program, args)
			for i := range args {
				require.Error(t, check(append(slices.Clone(args), args[i])), "twice: %s", args[i])
				require.Error(t, check(slices.Replace(slices.Clone(args), i, i+1, args[i]+"`")), args[i])
			}
		}
		require.Error(t, check(nil), program)
	}
	for _, hostile := range []string{"../x", "c1/../c2", "a b", ""} {
		require.Error(t, programs["mariadb-dump"].Check(profile.Stack{Cluster: hostile}.Backup(name).DumpArgs()), hostile)
		require.Error(t, programs["tar"].Check(s.Backup(hostile).ArchiveArgs()), hostile)
		require.Error(t, programs["mariadb"].Check(profile.Stack{Cluster: hostile}.Database().RestoreArgs()), hostile)
		require.False(t, programs["mariadb"].StdinFiles.MatchString(s.Backup(hostile).DatabaseFile()), hostile)
	}
	require.True(t, programs["mariadb"].StdinFiles.MatchString(s.Backup(name).DatabaseFile()))
	require.Nil(t, programs["tar"].StdinFiles)
}
