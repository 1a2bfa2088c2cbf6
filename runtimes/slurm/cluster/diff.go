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

// Diff is how the files of a cluster differ from those of another one on the same host: a plan shows its changes, a configure writes
// its files and does its steps, and an observation tells what is not written yet.
type Diff struct {
	Files   map[string]File // of the wanted cluster, those with another content, by path
	Changes []Change        // sorted by What
}

// Change is one thing that differs, with what makes the daemons take it over.
type Change struct {
	What  string // such as "slurm.conf MaxJobCount", "slurm.conf PartitionName=main" or "gres.conf"
	Class plan.Class
	Steps Steps
}

// Compare returns what makes have the wanted cluster. have is nil if nobody knows what is on the host: then all of it changes.
func Compare(have, want *Cluster) (Diff, error) {
	is, conf, err := want.render()
	if err != nil {
		return Diff{}, err
	}
	d := Diff{Files: map[string]File{}}
	if have == nil {
		d.Files = is
		d.Changes = []Change{{"all files", plan.ClassRestart, Steps{Restart: true, Workers: true, Reconfigure: true, Database: true}}}
		return d, nil
	}
	was, old, err := have.render()
	if err != nil {
		return Diff{}, err
	}
	for path, f := range is {
		if !bytes.Equal(was[path].Data, f.Data) {
			d.Files[path] = f
			d.Changes = append(d.Changes, want.changeOf(path)...)
		}
	}
	if _, isChanged := d.Files[want.stack().Conf()]; isChanged {
		d.Changes = append(d.Changes, want.changedLines(old, conf)...)
	}
	slices.SortFunc(d.Changes, func(a, b Change) int { return strings.Compare(a.What, b.What) })
	return d, nil
}

// Steps returns the steps of all changes.
func (d Diff) Steps() (all Steps) {
	for _, ch := range d.Changes {
		all = all.Or(ch.Steps)
	}
	return all
}

// changedLines returns the changes of slurm.conf.
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
			Reconfigure: true, // also for a line that no daemon reads: Slurm compares the hashes of files
		}})
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
