package slurm

import (
	"context"
	"maps"
	"slices"

	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/cluster"
)

// fileChange is a change of the files of a control stack: from those that worked last to those of a record.
type fileChange struct {
	cluster.Diff
	applied    *cluster.Cluster // whose files worked last; nil: they cannot be rendered
	want       *cluster.Cluster
	back       cluster.Diff // from the unfinished change to the record: a daemon may have read the files of the unfinished one
	unreadable error        // why the files that worked last cannot be rendered
}

// changeTo returns the change from the files of the record on the host to those of another record.
func (r *record) changeTo(wanted *record) (ch fileChange, err error) {
	if ch.want, err = wanted.cluster(); err != nil {
		return ch, err
	}
	if ch.applied, ch.unreadable = r.applied(); ch.unreadable != nil {
		ch.applied = nil
	}
	if ch.Diff, err = cluster.Compare(ch.applied, ch.want); err != nil {
		return ch, err
	}
	if ch.Unreadable != nil {
		ch.applied, ch.unreadable = nil, ch.Unreadable
	}
	if r.Writing == nil {
		return ch, nil
	}
	if begun, unread := r.rendering(r.Writing).cluster(); unread == nil { // else no file of it was written
		ch.back, err = cluster.Compare(begun, ch.want)
	}
	return ch, err
}

// possible returns the contents that the files on the host may have: those of the files that worked last, and of those that are being
// written.
func (ch fileChange) possible() []map[string]cluster.File {
	if ch.back.Have == nil {
		return []map[string]cluster.File{ch.Have}
	}
	return []map[string]cluster.File{ch.Have, ch.back.Have}
}

// hostFiles renders the contents that the files on the host may have, as fileChange.possible.
func (r *record) hostFiles() ([]map[string]cluster.File, error) {
	applied, err := r.appliedFiles()
	if err != nil || r.Writing == nil {
		return []map[string]cluster.File{applied}, err
	}
	if begun, unread := files(r.rendering(r.Writing)); unread == nil { // else no file of it was written
		return []map[string]cluster.File{applied, begun}, nil
	}
	return []map[string]cluster.File{applied}, nil
}

// stepsFrom returns the steps that bring the daemons to the wanted files, from the journal and the state of the host.
func (ch fileChange) stepsFrom(j journal, found hostState) cluster.Steps {
	todo := j.Owed.Or(ch.Steps()).Or(ch.back.Steps())
	todo.Reconfigure = todo.Reconfigure || found.differs
	for path := range found.changed {
		// A person changed it since the record was read.
		if !ch.Changed(path) && j.Writing == nil {
			todo = todo.Or(ch.want.StepsOf(path))
		}
	}
	return todo
}

// hostState is how a host differs from the wanted cluster.
type hostState struct {
	changed map[string]cluster.File // files that have to be written
	differs bool                    // slurmctld's memory differs from its files
	// nodes are those of joined workers as the controller has them now. A fault of a node that leaves does not count against a file: its
	// slurmd may be stopped already.
	nodes []node
}

// compareHost compares the host with the wanted cluster.
func (c *control) compareHost(ctx context.Context, ch fileChange) (found hostState, err error) {
	tools, err := c.tools(ctx)
	if err != nil {
		return found, err
	}
	res, err := c.do(ctx, statOp(slices.Sorted(maps.Keys(ch.Want))...), queryOp(c, cli.ShowConfig()),
		queryOp(c, tools.Nodes), queryOp(c, cli.Partitions()))
	if err != nil {
		return found, err
	}
	found.changed = map[string]cluster.File{}
	for _, st := range res[0].Stats {
		if f := ch.Want[st.Path]; !st.Exists || st.SHA256 != digest(f.Data) {
			found.changed[st.Path] = f
		}
	}
	found.differs = !hashMatches(res[1])
	for _, p := range cluster.PartitionNames(ch.want.Partitions()) {
		if c.rec.closing(partitionTarget(p)) && !c.rec.leaves(p) {
			found.differs = true // it was being removed and is wanted again
			c.rec.reopen(partitionTarget(p))
		}
	}
	nodes, err := answer(c.site, tools.Nodes, res[2])
	if err != nil {
		return found, err
	}
	known, err := answer(c.site, cli.Partitions(), res[3])
	if err != nil {
		return found, err
	}
	found.differs = found.differs || len(ch.want.ChangedByHand(known, nodes, c.disk.closes)) > 0
	found.nodes = slices.DeleteFunc(nodes, func(n node) bool { return !c.rec.HasJoined(n.Name) || c.rec.closing(nodeTarget(n.Name)) })
	return found, nil
}
