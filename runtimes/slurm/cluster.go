package slurm

import (
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// cluster is what a cluster should be, as a value: what its unit declares, with the workers and projects that have not left yet. Plan,
// configure and observation derive files, accounting and reservations from it, and no host is asked for it.
type cluster struct {
	name      string
	unit      *plan.Unit
	set       settings                     // the config of the unit, decoded once
	workers   []plan.Member                // with a line in slurm.conf, by node, with the CPUs and the shape in it
	attached  []schema.EffectiveAttachment // with those that are being detached, by project
	detaching []schema.EffectiveAttachment
	leaving   []partition // no longer declared, with jobs that have not ended
	users     []schema.UnixUser
	at        place
}

// place is what a cluster has on its control host.
type place struct {
	hostname string
	ports    ports
	firstJob int // 0: slurmctld chooses
}

// cluster returns what the cluster of a record should be.
func (r *record) cluster() (*cluster, error) {
	set, err := parseSettings(r.Unit.Effective.Config)
	if err != nil {
		return nil, err
	}
	return &cluster{
		name: r.Cluster, unit: &r.Unit, set: set, workers: r.workers(), attached: r.attachments(), detaching: r.Detaching, leaving: r.Leaving,
		users: r.users(), at: place{r.Hostname, r.Ports, r.FirstJob},
	}, nil
}

// clusterOf returns the cluster of a unit whose members have all joined, on a host that is the same for all units.
func clusterOf(u *plan.Unit) (*cluster, error) {
	r := record{
		Cluster: ClusterName(u.Effective.Key), Unit: *u, Hostname: "controller", Ports: ports{Slurmctld: firstPort, Slurmdbd: firstPort + 1},
	}
	return r.cluster()
}

// settled returns the cluster without the projects and partitions that have only jobs left to end.
func (c *cluster) settled() *cluster {
	s := *c
	s.leaving, s.detaching, s.users = nil, nil, slices.Clone(c.unit.Effective.Users)
	slices.SortFunc(s.users, func(a, b schema.UnixUser) int { return strings.Compare(a.Name, b.Name) })
	s.attached = slices.DeleteFunc(slices.Clone(c.attached), func(a schema.EffectiveAttachment) bool { return c.detaches(a.ProjectID) })
	return &s
}

func (c *cluster) stack() profile.Stack { return profile.Stack{Cluster: c.name} }

// version is the declared version of Slurm.
func (c *cluster) version() cli.Version { return cli.Version(c.unit.Effective.SoftwareVersion) }

// detaches reports whether a project is being detached.
func (c *cluster) detaches(project string) bool {
	return isAttached(c.detaching, project) && !isAttached(c.unit.Effective.Attachments, project)
}
