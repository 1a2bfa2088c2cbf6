package profile_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/runtimes/slurm/profile"
)

func slurmdParams() map[string]string {
	return map[string]string{
		profile.ParamServer: "10.77.0.10:20001", profile.ParamNode: "gpu-1", profile.ParamAddress: "10.77.0.11",
		profile.ParamCPUs: "8", profile.ParamMemory: "16000", profile.ParamGPUs: "a100:2,h100:1", profile.ParamFeatures: "worker,gpu",
	}
}

func TestSlurmdArguments(t *testing.T) {
	spec, err := profile.Profile().Services[profile.Slurmd]("physics", slurmdParams())
	require.NoError(t, err)
	require.Equal(t, []string{"-Z", "-N", "gpu-1", "--conf-server", "10.77.0.10:20001", "--conf",
		"NodeAddr=10.77.0.11 CPUs=8 RealMemory=16000 Gres=gpu:a100:2,gpu:h100:1 Feature=worker,gpu"}, spec.Args)
	spec, err = profile.Profile().Services[profile.Slurmd]("physics", nil)
	require.NoError(t, err)
	require.Empty(t, spec.Args)
}

func TestServicesRefuseWhatCouldSpeakToADaemon(t *testing.T) {
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
		if param == profile.ParamGPUs {
			continue
		}
		p := slurmdParams()
		delete(p, param)
		_, err := services[profile.Slurmd]("physics", p)
		require.Error(t, err, "without %s", param)
	}
	p := slurmdParams()
	p["conf"] = "CPUs=1"
	_, err := services[profile.Slurmd]("physics", p)
	require.ErrorContains(t, err, "unknown parameter")
	_, err = services[profile.MariaDB]("other", nil)
	require.Error(t, err)
}

func TestPrograms(t *testing.T) {
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
		{"scontrol", "delete nodename=w1", true},
		{"scontrol", "", false},
		{"scontrol", "shutdown", false},
		{"scontrol", "token username=root", false},
		{"scontrol", "update jobid=1 state=x", false},
		{"scontrol", "delete partition=main", false},
		{"scontrol", "update nodename=ALL state=drain", false},
		{"sacctmgr", "-i load /etc/shadow", false},
		{"sacctmgr", "-i load file=/etc/passwd", false},
		{"sacctmgr", "-i load file=/var/lib/slurm/c1/accounts.cfg", true},
		{"sacctmgr", "-i load file=/var/lib/slurm/../../etc/accounts.cfg", false},
		{"sacctmgr", "-i add user a,b account=x cluster=c1", true},
		{"sacctmgr", "add user a account=x", false},
		{"sacctmgr", "-i dump c1 file=/etc/cron.d/x", false},
		{"sacctmgr", "-i -n -P list assoc cluster=c1 format=user", true},
		{"sinfo", "--json", true},
		{"sinfo", "-o x", false},
		{"squeue", "--json --all", true},
		{"squeue", "--json --nodelist=w1", true},
		{"squeue", "--all", false},
		{"squeue", "--json --format=%j", false},
		{"id", "-u alice", true},
		{"id", "-u -G", false},
		{"id", "alice", false},
		{"scontrol", "update partitionname=main state=drain", true},
		{"scontrol", "update partitionname=main state=drain maxtime=1", false},
		{"sbatch", "--parsable --export=NONE --uid=2001 --gid=2001 --gres=gpu:1", true},
		{"sbatch", "--parsable --export=NONE --uid=0 --gid=0", false},
		{"sbatch", "--parsable --export=NONE --uid=2001 --gid=0", false},
		{"sbatch", "--parsable --uid=2001 --gid=2001", false},
		{"sbatch", "--parsable --export=NONE --uid=2001 --gid=2001 /tmp/script", false},
		{"sbatch", "--parsable --export=NONE --uid=2001 --gid=2001 --export=ALL", false},
		{"sbatch", "--parsable --export=NONE --uid=2001 --gid=2001 --wrap=x", false},
		{"scancel", "12 13", true},
		{"scancel", "--user=root", false},
		{"scancel", "", false},
		{"sacct", "--json --allusers", true},
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
	for name, p := range programs {
		require.True(t, strings.HasPrefix(p.Path, "/usr/"), name)
		require.NotNil(t, p.Check, name)
		require.Error(t, p.Check([]string{"; rm -rf /"}), name)
	}
}

// Only what has no effect may pass without an epoch.
func TestReads(t *testing.T) {
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
		{"sacctmgr", "-i add user list account=x", false},
		{"sinfo", "--json", true},
		{"squeue", "--json", true},
		{"id", "-u alice", true},
	} {
		require.Equal(t, c.reads, programs[c.program].Reads(strings.Fields(c.args)), "%s %s", c.program, c.args)
	}
	for _, name := range []string{"sbatch", "scancel", "mariadb", "mariadb-install-db"} {
		require.Nil(t, programs[name].Reads, name)
	}
}

// What a stack names must be inside what the profile allows.
func TestEveryPathOfAStackIsAllowed(t *testing.T) {
	s := profile.Stack{Cluster: "physics_lhc_1a2b3c4d"}
	require.NoError(t, s.Valid())
	p := profile.Profile()
	for _, path := range []string{
		s.Record(), s.Etc(), s.Conf(), s.DBDConf(), s.Lib(), s.State(), s.Accounts(), s.Log(), s.Run(),
		s.MungeKey(), s.MungeRun(), s.MungeSocket(), s.MungeLog(), s.MungeSeed(),
	} {
		require.True(t, slices.ContainsFunc(p.Paths, func(pattern string) bool { return within(pattern, path) }), path)
	}
	for _, name := range slices.Sorted(maps.Keys(p.Services)) {
		unit := s.Cluster
		if name == profile.MariaDB {
			unit = ""
		}
		spec, err := p.Services[name](unit, nil)
		require.NoError(t, err, name)
		require.True(t, slices.ContainsFunc(p.Paths, func(pattern string) bool { return within(pattern, spec.PIDFile) }), spec.PIDFile)
	}
}

// within is the profile's matching, as its doc says it.
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
		if !star && want != sp[i] || star && (!strings.HasPrefix(sp[i], pre) || !strings.HasSuffix(sp[i], post) || len(sp[i]) <= len(pre)+len(post)) {
			return false
		}
	}
	return len(pp) == len(sp)
}
