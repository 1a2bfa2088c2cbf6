package profile

import (
	"encoding/json"
	"io/fs"
	"path"
	"strings"

	"berth/runtimes"
)

// WorkerFiles returns the files of a worker's daemons, without directories and the
// link of a stack.
func WorkerFiles() []string {
	return []string{
		WorkerMungeKey, WorkerLog, WorkerMungeLog, WorkerMungeSeed,
		WorkerConfLink, WorkerMungeSocket, WorkerMungeSocket + ".lock",
	}
}

// derivePaths derives the paths that Berth made from the records of instances on
// the host. A record is written before all else of its instance and removed last.
func derivePaths(root fs.FS) []runtimes.DerivedPath {
	dir := strings.TrimPrefix(InstanceDir, "/")
	entries, err := fs.ReadDir(root, dir)
	if err != nil {
		return nil // Berth has made nothing on this host
	}
	var list []runtimes.DerivedPath
	own := func(paths ...string) {
		for _, p := range paths {
			list = append(list, runtimes.DerivedPath{Path: p, Own: true})
		}
	}
	shared := func(paths ...string) {
		for _, p := range paths {
			list = append(list, runtimes.DerivedPath{Path: p})
		}
	}
	stacks := false
	for _, e := range entries {
		name, isRecord := strings.CutSuffix(RecordOf(e.Name()), ".json")
		s := Stack{name}
		switch {
		case InstanceDir+"/"+e.Name() == WorkerRecord:
			own(WorkerSpoolDir, WorkerOldLogs, JobsDir)
			shared(WorkerRecord, WorkerLogRotation)
			shared(WorkerFiles()...)
			if of := (Stack{clusterOfWorker(root)}); of.Valid() == nil {
				shared(of.Munge().Run())
			}
		case isRecord && s.Valid() == nil:
			stacks = true
			own(s.Lib(), s.Log(), s.Run(), s.Munge().Run(), s.Backups())
			shared(s.Record(), s.RecordCopy(), s.DamagedRecord(), s.LogRotation(), s.Etc(), s.Munge().Key(), s.Munge().Log(),
				s.Munge().Seed())
			shared(s.ConfigFiles()...)
		}
	}
	if stacks {
		own(DatabaseDir, DatabaseRunDir, DatabaseFiles)
	}
	return list
}

// clusterOfWorker reads the cluster from a worker's record.
func clusterOfWorker(root fs.FS) string {
	var rec struct {
		Cluster string `json:"cluster"`
	}
	raw, err := fs.ReadFile(root, strings.TrimPrefix(path.Clean(WorkerRecord), "/"))
	if err != nil || json.Unmarshal(raw, &rec) != nil {
		return ""
	}
	return rec.Cluster
}
