package slurm

import (
	"berth/runtimes"
	"berth/runtimes/slurm/cluster"
)

// fetched has the digest of each file that the slurmd of a worker fetches from slurmctld, by its
// path on the worker.
type fetched map[string]string

// fetchedFiles returns what workers have once no step of a change is owed; nil: unknown.
func (c *control) fetchedFiles() fetched {
	applied, err := c.rec.appliedFiles()
	if err != nil || c.rec.Owed != (cluster.Steps{}) || c.rec.Writing != nil {
		return nil
	}
	out := fetched{}
	for here, there := range c.stack.FetchedFiles() {
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
