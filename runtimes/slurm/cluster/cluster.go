package cluster

import (
	"maps"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// Cluster is what a cluster should be, as a value: what its unit declares, with the workers and projects that have not left yet. Plan,
// configure and observation derive files, accounting and reservations from it, and no host is asked for it.
type Cluster struct {
	name      string
	unit      *plan.Unit
	set       Config                       // the config of the unit, decoded once
	workers   []plan.Member                // with a line in slurm.conf, by node, with the CPUs and the shape in it
	attached  []schema.EffectiveAttachment // with those that are being detached, by project
	detaching []schema.EffectiveAttachment
	leaving   []Partition // no longer declared, with jobs that have not ended
	users     []schema.UnixUser
	at        ControlHost
}

// ControlHost has the settings of a cluster that depend on its control host.
type ControlHost struct {
	Hostname string
	Ports    Ports
	FirstJob int // 0: slurmctld chooses
}

// Ports of a control stack, unique on its host.
type Ports struct {
	Slurmctld int `json:"slurmctld"`
	Slurmdbd  int `json:"slurmdbd"`
}

// JoinedWorkers are the workers that belong to the cluster, with the shapes of their hosts.
type JoinedWorkers struct {
	Joined []plan.Member `json:"joined,omitempty"` // members that joined or began to join and have not left, by name
	// Found has the shape of the host of each node at the time when the line of the node was written. A
	// node without it joined before its host could be asked: its line has CPUs only until it joins again.
	Found map[string]schema.Shape `json:"found,omitempty"`
}

// Clone returns a copy that shares no slice or map.
func (w JoinedWorkers) Clone() JoinedWorkers {
	return JoinedWorkers{slices.Clone(w.Joined), maps.Clone(w.Found)}
}

// Nodes returns the nodes of the workers that have joined.
func (w JoinedWorkers) Nodes() (names []string) {
	for _, m := range w.Joined {
		names = append(names, m.Node)
	}
	return names
}

// HasJoined reports whether a member has joined on a node.
func (w JoinedWorkers) HasJoined(node string) bool {
	return slices.ContainsFunc(w.Joined, func(m plan.Member) bool { return m.Node == node })
}

// Workers returns the members with a line in slurm.conf, by node, with the CPUs and the shape in it.
func (w JoinedWorkers) Workers(u *plan.Unit) []plan.Member {
	list := w.WithLine(u)
	for i, m := range list {
		list[i] = WithShape(m, w.Found[m.Node])
	}
	return list
}

// WithLine returns the members with a line in slurm.conf, by node: those of the unit, and
// those that have joined and not left, whatever the unit says.
func (w JoinedWorkers) WithLine(u *plan.Unit) []plan.Member {
	list := slices.Clone(w.Joined)
	for _, m := range u.Members {
		if !m.ControlPlane && !slices.ContainsFunc(list, func(j plan.Member) bool { return j.Node == m.Node }) {
			list = append(list, m)
		}
	}
	slices.SortFunc(list, func(a, b plan.Member) int { return strings.Compare(a.Node, b.Node) })
	return list
}

// PendingRemovals are no longer declared, and their jobs have not ended.
type PendingRemovals struct {
	Leaving []Partition `json:"leaving_partitions,omitempty"`
	// Detaching are the attachments of projects as they were applied last.
	Detaching []schema.EffectiveAttachment `json:"detaching_projects,omitempty"`
}

// Clone returns a copy that shares no slice.
func (p PendingRemovals) Clone() PendingRemovals {
	return PendingRemovals{slices.Clone(p.Leaving), slices.Clone(p.Detaching)}
}

// Declaration is the input from which Of derives a cluster.
type Declaration struct {
	Name string
	Unit *plan.Unit
	JoinedWorkers
	PendingRemovals
	People []schema.UnixUser // users with an account on a host, or maybe with one
	At     ControlHost
}

// New returns the cluster of a declaration. The error is that of its config.
func New(d Declaration) (*Cluster, error) {
	set, err := Parse(d.Unit.Effective.Config)
	if err != nil {
		return nil, err
	}
	return &Cluster{
		name: d.Name, unit: d.Unit, set: set, workers: d.Workers(d.Unit), attached: Attachments(d.Unit, d.Detaching),
		detaching: d.Detaching,
		leaving:   d.Leaving, users: Users(d.Unit, d.People, d.Detaching), at: d.At,
	}, nil
}

// clusterOf returns the cluster of a unit whose members have all joined, on a host that is the same for all units.
func clusterOf(u *plan.Unit) (*Cluster, error) {
	at := ControlHost{Hostname: "controller", Ports: Ports{Slurmctld: FirstPort, Slurmdbd: FirstPort + 1}}
	return New(Declaration{Name: Name(u.Effective.Key), Unit: u, At: at})
}

// settled returns the cluster without the projects and partitions that have only jobs left to end.
func (c *Cluster) settled() *Cluster {
	s := *c
	s.leaving, s.detaching, s.users = nil, nil, slices.Clone(c.unit.Effective.Users)
	slices.SortFunc(s.users, func(a, b schema.UnixUser) int { return strings.Compare(a.Name, b.Name) })
	s.attached = slices.DeleteFunc(slices.Clone(c.attached), func(a schema.EffectiveAttachment) bool { return c.detaches(a.ProjectID) })
	return &s
}

func (c *Cluster) stack() profile.Stack { return profile.Stack{Cluster: c.name} }

// version is the declared version of Slurm.
func (c *Cluster) version() cli.Version { return cli.Version(c.unit.Effective.SoftwareVersion) }

// detaches reports whether a project is being detached.
func (c *Cluster) detaches(project string) bool {
	return isAttached(c.detaching, project) && !isAttached(c.unit.Effective.Attachments, project)
}
