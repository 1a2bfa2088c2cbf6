package cluster

import (
	"bytes"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/runtimes/slurm/profile"
)

// Diff is how the files of a cluster differ from those of another one on the same host. A plan shows its changes, a configure does its
// steps, and an observation reports it as not written yet.
type Diff struct {
	Have, Want map[string]File // all files of each cluster, by path; Have is nil if they are unknown
	Unreadable error           // why the files of the cluster that the host has cannot be rendered, so that they are unknown
	Changes    []Change        // sorted by What
}

// Change is one difference, with the step by which the daemons take it over.
type Change struct {
	What  string // such as "slurm.conf MaxJobCount", "slurm.conf PartitionName=main" or "gres.conf"
	Class plan.Class
	Steps Steps
}

// Compare returns the files and changes that bring the cluster have to the cluster want. If have is nil or cannot be rendered, the files on
// the host are unknown, and all of them change. The error is that of want.
func Compare(have, want *Cluster) (Diff, error) {
	wanted, conf, err := want.render()
	if err != nil {
		return Diff{}, err
	}
	d := Diff{Want: wanted}
	var old confLines
	if have != nil {
		if d.Have, old, d.Unreadable = have.render(); d.Unreadable != nil {
			d.Have, have = nil, nil
		}
	}
	if have == nil {
		d.Changes = []Change{{"all files", plan.ClassRestart, Steps{Restart: true, Workers: true, Reconfigure: true, Database: true}}}
		return d, nil
	}
	for path := range wanted {
		if d.Changed(path) {
			d.Changes = append(d.Changes, want.changeOf(path)...)
		}
	}
	if d.Changed(want.stack().Conf()) {
		d.Changes = append(d.Changes, want.changedLines(old, conf)...)
	}
	slices.SortFunc(d.Changes, func(a, b Change) int { return strings.Compare(a.What, b.What) })
	return d, nil
}

// Changed reports whether a wanted file has another content.
func (d Diff) Changed(path string) bool { return !bytes.Equal(d.Have[path].Data, d.Want[path].Data) }

// Steps returns the steps of all changes.
func (d Diff) Steps() (all Steps) {
	for _, ch := range d.Changes {
		all = all.Or(ch.Steps)
	}
	return all
}

// changedLines returns the changes of a slurm.conf whose text differs. Slurm compares hashes of the text, so another order of the same
// lines needs a reconfigure, too.
func (c *Cluster) changedLines(before, after confLines) (changes []Change) {
	classes := map[profile.Activation]plan.Class{
		profile.None: plan.ClassLive, profile.Reconfigure: plan.ClassReconfigure,
		profile.RestartController: plan.ClassRestart, profile.RestartAll: plan.ClassRestart,
	}
	old, now := before.grouped(confLine.named), after.grouped(confLine.named)
	both := maps.Clone(old)
	maps.Copy(both, now)
	for line := range both {
		if slices.Equal(old[line], now[line]) {
			continue
		}
		name, _, _ := strings.Cut(line, "=")
		how := profile.ActivationOf(name, string(c.version()))
		changes = append(changes, Change{"slurm.conf " + line, classes[how], Steps{
			Restart: how >= profile.RestartController, Workers: how >= profile.RestartAll,
			Reconfigure: true, // also for a line that no daemon reads
		}})
	}
	if len(changes) == 0 {
		return []Change{{"slurm.conf", plan.ClassReconfigure, Steps{Reconfigure: true}}}
	}
	return changes
}

// changeOf returns the change of a file other than slurm.conf, if it is one that daemons read after the creation.
func (c *Cluster) changeOf(path string) []Change {
	s := c.stack()
	if path == s.Conf() || path == s.Accounts() { // accounts are loaded at the creation only
		return nil
	}
	ch := Change{What: filepath.Base(path), Class: plan.ClassLive, Steps: c.StepsOf(path)}
	switch {
	case ch.Steps.Restart, ch.Steps.Workers, ch.Steps.Database:
		ch.Class = plan.ClassRestart
	case ch.Steps.Reconfigure:
		ch.Class = plan.ClassReconfigure
	}
	return []Change{ch}
}

// StepsOver returns the steps that follow the write of slurm.conf over another text, such as one that a person or another release of
// Berth wrote.
func (c *Cluster) StepsOver(text []byte) (all Steps) {
	conf, err := c.slurmConf()
	if err != nil {
		return c.StepsOf(c.stack().Conf())
	}
	for _, ch := range c.changedLines(ParseConf(text), conf.lines) {
		all = all.Or(ch.Steps)
	}
	return all
}

// StepsOf returns the steps that follow the write of a file, whatever it had before.
func (c *Cluster) StepsOf(path string) Steps {
	s := c.stack()
	switch path {
	case s.Conf():
		return Steps{Restart: true, Workers: true, Reconfigure: true}
	case s.Accounts(), s.LogRotation():
		return Steps{}
	case s.DBDConf():
		return Steps{Database: true}
	case s.CgroupConf(): // which slurmd reads at its start
		return Steps{Reconfigure: true, Workers: !c.version().Reexecutes()}
	}
	return Steps{Reconfigure: true}
}

// named returns the name of a line. That of a node, a set of nodes or a partition includes the object.
func (l confLine) named() string {
	if slices.Contains([]string{profile.NodeName, "NodeSet", profile.PartitionName}, l.name) {
		return l.name + "=" + l.object()
	}
	return l.name
}

// partitionsLost returns the names of the partitions that a cluster has and another one lacks, in their order.
func (c *Cluster) partitionsLost(after *Cluster) (names []string) {
	for _, name := range PartitionNames(c.Partitions()) {
		if !slices.Contains(PartitionNames(after.Partitions()), name) {
			names = append(names, name)
		}
	}
	return names
}

// Partitions returns the partitions in slurm.conf: those that are declared, and then those that have only jobs left to end.
func (c *Cluster) Partitions() []Partition {
	all := slices.Clone(c.set.Partitions)
	for _, p := range c.leaving {
		if !slices.Contains(PartitionNames(c.set.Partitions), p.Name) {
			all = append(all, p)
		}
	}
	return all
}
