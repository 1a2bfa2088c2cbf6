package profile_test

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"berth/runtimes"
	"berth/runtimes/slurm/profile"
)

func TestDerivedPathsComeFromRecords(t *testing.T) {
	derive := func(files map[string]string) []runtimes.DerivedPath {
		root := fstest.MapFS{"etc/munge/munge.key": {Data: []byte("key")}}
		for name, data := range files {
			root[strings.TrimPrefix(name, "/")] = &fstest.MapFile{Data: []byte(data)}
		}
		return profile.Profile().DerivePaths(root)
	}
	has := func(list []runtimes.DerivedPath, path string, own bool) bool {
		return slices.Contains(list, runtimes.DerivedPath{Path: path, Own: own})
	}
	require.Empty(t, derive(nil))
	require.Empty(t, derive(map[string]string{profile.InstanceDir + "/notes.txt": "", profile.InstanceDir + "/../x.json": "{}",
		profile.InstanceDir + "/A-B.json": "{}"}))

	worker := derive(map[string]string{profile.WorkerRecord: `{"cluster":"t_p_one_12345678"}`})
	for path, own := range map[string]bool{
		"/run/slurm/conf":           false,
		"/run/munge/munge.socket.2": false, "/run/munge-t_p_one_12345678": false, profile.WorkerRecord: false, profile.WorkerSpoolDir: true,
		profile.JobsDir: true,
	} {
		require.True(t, has(worker, path, own), path)
	}
	require.False(t, has(worker, profile.DatabaseDir, true))
	require.False(t, has(worker, "/var/log/munge/munged.log", false), "munge may have made it before Berth came")
	require.NotEmpty(t, derive(map[string]string{profile.WorkerRecord: `{"cluster":"../../etc"}`}))
	for _, e := range derive(map[string]string{profile.WorkerRecord: `{"cluster":"../../etc"}`}) {
		require.NotContains(t, e.Path, "..")
	}

	s := profile.Stack{Cluster: "t_p_one_12345678"}
	control := derive(map[string]string{s.Record(): "{}"})
	require.False(t, has(append(worker, control...), "/etc/munge/munge.key", false), "the key of munge's package is the host's")
	for path, own := range map[string]bool{
		s.Record(): false, s.Etc(): false, s.Conf(): false, s.Munge().Key(): false, s.Lib(): true, s.Log(): true,
		s.Run(): true, s.Munge().Run(): true, profile.DatabaseDir: true,
	} {
		require.True(t, has(control, path, own), path)
	}
}

// Every file that Berth makes has a name that no package uses. A directory that
// a package may have made is shared; all others belong to Berth.
func TestPathsDoNotCollideWithPackages(t *testing.T) {
	const cluster = "t_p_one_12345678"
	s := profile.Stack{Cluster: cluster}
	shared := []string{profile.WorkerMungeRun, profile.WorkerRunDir}
	// Clients look for these under these names alone.
	fixed := []string{profile.WorkerMungeSocket, profile.WorkerMungeSocket + ".lock", profile.WorkerConfLink}
	named := func(path string) bool { return strings.Contains(path, "berth") || strings.Contains(path, cluster) }
	paths := append(s.ConfigFiles(), s.Record(), s.Munge().Key(), s.Lib(), s.Log(), profile.WorkerRecord, profile.WorkerSpoolDir)
	paths = append(paths, profile.WorkerFiles()...)
	for name, make := range profile.Profile().Services {
		unit := cluster
		if name == profile.MariaDB {
			unit = ""
		}
		spec, err := make(unit, nil)
		require.NoError(t, err)
		require.NotEmpty(t, spec.DistributionUnit, name)
		for _, d := range spec.RunDirs {
			require.Equal(t, !slices.Contains(shared, d.Path), d.Own, d.Path)
			require.True(t, named(d.Path) || slices.Contains(shared, d.Path), d.Path)
		}
		for _, l := range spec.Links {
			paths = append(paths, l.Path)
		}
		paths = append(append(paths, spec.LogFile), spec.Files...)
	}
	for _, p := range paths {
		require.True(t, named(p) || slices.Contains(fixed, p), p)
	}
}
