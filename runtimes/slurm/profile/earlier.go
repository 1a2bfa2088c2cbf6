package profile

import (
	"encoding/json"
	"io/fs"
	"path"
	"strings"

	"berth/runtimes"
)

// EarlierMungeKey is where a worker's key was before it had a name of Berth's
// own. Logs and seed of that time may have been the host's before: they stay.
const EarlierMungeKey = MungeEtc + "/munge.key"

// WorkerFiles are the files that a worker's daemons use, besides the link of a
// stack. Directories are not among them.
func WorkerFiles() []string {
	return []string{
		WorkerMungeKey, WorkerLog, WorkerMungeLog, WorkerMungeSeed,
		WorkerConfLink, WorkerMungeSocket, WorkerMungeSocket + ".lock",
	}
}

// earlierPaths names what Berth made on a host, by the records of instances
// there: each is written before anything else of its instance and removed last.
func earlierPaths(root fs.FS) []runtimes.EarlierPath {
	dir := strings.TrimPrefix(InstanceDir, "/")
	entries, err := fs.ReadDir(root, dir)
	if err != nil {
		return nil // no such directory: nothing of Berth's is here
	}
	var list []runtimes.EarlierPath
	own := func(paths ...string) {
		for _, p := range paths {
			list = append(list, runtimes.EarlierPath{Path: p, Own: true})
		}
	}
	shared := func(paths ...string) {
		for _, p := range paths {
			list = append(list, runtimes.EarlierPath{Path: p})
		}
	}
	stacks := false
	for _, e := range entries {
		name, isRecord := strings.CutSuffix(e.Name(), ".json")
		s := Stack{name}
		switch {
		case InstanceDir+"/"+e.Name() == WorkerRecord:
			own(WorkerSpoolDir)
			shared(WorkerRecord, EarlierMungeKey)
			shared(WorkerFiles()...)
			if of := (Stack{clusterOfWorker(root)}); of.Valid() == nil {
				shared(of.MungeRun())
			}
		case isRecord && s.Valid() == nil:
			stacks = true
			own(s.Lib(), s.Log(), s.Run(), s.MungeRun())
			shared(s.Record(), s.Etc(), s.MungeKey(), s.MungeLog(), s.MungeSeed())
			shared(s.ConfigFiles()...)
		}
	}
	if stacks {
		own(DatabaseDir, DatabaseRunDir)
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
