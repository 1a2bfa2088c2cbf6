package slurm

import (
	"berth/runtimes"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
)

// fetched has the digest of each file that the slurmd of a worker fetches from slurmctld, by its
// path on the worker.
type fetched map[string]string

// fetched returns what workers have of the applied files once no step of a change is owed; nil: unknown.
func (r *record) fetched(applied map[string]cluster.File) fetched {
	if r.Owed != (cluster.Steps{}) || r.Writing != nil {
		return nil
	}
	out := fetched{}
	for here, there := range (profile.Stack{Cluster: r.Cluster}).FetchedFiles() {
		if f := applied[here]; len(f.Data) > 0 {
			out[there] = digest(f.Data)
		}
	}
	return out
}

// fault names the first file whose copy on the node differs from slurmctld's: the node did not answer while the file changed, or
// a person removed the copy, without which srun fails in jobs. slurmd fetches it at its next start.
func (f fetched) fault(node string, stats []runtimes.FileStat) string {
	for _, st := range stats {
		switch want := f[st.Path]; {
		case want == "":
		case !st.Exists:
			return st.Path + " on " + node + " is missing; slurmd fetches it when it starts"
		case st.SHA256 != "" && want != st.SHA256:
			return st.Path + " on " + node + " is outdated; slurmd fetches the current one when it starts"
		}
	}
	return ""
}
