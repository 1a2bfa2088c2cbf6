package slurm

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strconv"

	"berth/reconciler/plan"
	"berth/runtimes/slurm/cli"
	"berth/schema"
)

// fitted returns m with the CPUs and the shape in the line of its node, from what was found on its
// host: the zero value if nothing was. A declared shape counts. All threads, or all cores, of the
// host have its shape. Fewer CPUs are the first whole cores, as Slurm never shares a core between
// jobs: whole sockets if they are, else one socket. Threads are always those of the host: slurmd
// counts them in the order of cores, so with fewer two jobs would get one core.
func fitted(m plan.Member, found schema.Shape) plan.Member {
	if m.Shape != (schema.Shape{}) || found == (schema.Shape{}) || m.CPUs > found.Threads() {
		return m
	}
	if m.CPUs == found.Threads() || m.CPUs == found.Cores() {
		m.Shape = found
		return m
	}
	cores := max(m.CPUs/found.ThreadsPerCore, 1)
	m.Shape = schema.Shape{Sockets: 1, CoresPerSocket: cores, ThreadsPerCore: found.ThreadsPerCore}
	if cores%found.CoresPerSocket == 0 {
		m.Shape.Sockets, m.Shape.CoresPerSocket = cores/found.CoresPerSocket, found.CoresPerSocket
	}
	if m.CPUs = m.Shape.Threads(); cores == 1 && m.CPUs > 1 {
		m.CPUs = 1
	}
	return m
}

// shapeOf returns the shape that slurmd found; the zero value: some CPUs of its cores are off.
func shapeOf(r cli.Resources) schema.Shape {
	return schema.Shape{Sockets: r.Sockets, CoresPerSocket: r.CoresPerSocket, ThreadsPerCore: r.ThreadsPerCore}
}

// unused returns what of the host of a worker Slurm does not have, or "".
func (r *record) unused(m plan.Member) string {
	found := r.Found[m.Node]
	has := fitted(m, found)
	if found == (schema.Shape{}) || has.CPUs == found.Threads() && has.Shape == found {
		return ""
	}
	return fmt.Sprintf("Slurm has %d of the host's %d CPUs (sockets:cores:threads %s of %s), as the node declares %d", has.CPUs, found.Threads(), sct(has.Shape), sct(found), m.CPUs)
}

// sct returns a shape as sinfo shows it: sockets, cores of a socket and threads of a core.
func sct(s schema.Shape) string {
	return fmt.Sprintf("%d:%d:%d", s.Sockets, s.CoresPerSocket, s.ThreadsPerCore)
}

// shapes returns the shapes of the hosts with a line in slurm.conf, as far as they are known. It asks the hosts of members
// that before lacks or has otherwise. A worker that has joined, or that lines of an earlier file have, keeps its line. A host that does not answer is asked at
// the join.
func (c hardware) shapes(ctx context.Context, before *plan.Unit, lines map[string]schema.Shape) map[string]schema.Shape {
	all := map[string]schema.Shape{}
	var unknown []plan.Member
	for _, m := range c.rec.listed() {
		was, ok := before.Member(m.Name)
		keeps := c.rec.hasJoined(m.Node) || ok && was.Node == m.Node && was.HasResourcesOf(m)
		kept, hasLine := lines[m.Node]
		if found, ok := c.rec.Found[m.Node]; ok || kept != (schema.Shape{}) {
			all[m.Node] = cmp.Or(found, kept)
		} else if !keeps && !hasLine {
			unknown = append(unknown, m)
		}
	}
	for i, shape := range inParallel(unknown, func(m plan.Member) schema.Shape {
		has, err := c.find(ctx, m)
		if err != nil {
			c.log.Info("shape of the host unknown; read at the join", "host", m.Node, "reason", err.Error())
		}
		return shapeOf(has)
	}) {
		if shape != (schema.Shape{}) {
			all[unknown[i].Node] = shape
		}
	}
	return all
}

// checkShape compares a declared shape with that of the host.
func checkShape(m plan.Member, has cli.Resources) error {
	declared, found := m.Shape, shapeOf(has)
	if found == (schema.Shape{}) || declared.Sockets <= found.Sockets && declared.Cores() <= found.Cores() && declared.ThreadsPerCore <= found.ThreadsPerCore {
		return nil
	}
	return fmt.Errorf("host %s has %d sockets with %d cores of %d threads, but its node declares %d with %d of %d; correct sockets, cores_per_socket and threads_per_core in the node's document, or leave them out",
		m.Node, found.Sockets, found.CoresPerSocket, found.ThreadsPerCore, declared.Sockets, declared.CoresPerSocket, declared.ThreadsPerCore)
}

// awaitShape returns an error if the line of a new worker has another shape than its host, which
// did not answer when the line was written, or has changed since. It records the shape: the next
// plan writes the line, and then the worker joins. A shape of nodes with jobs is not changed.
func (c workerHosts) awaitShape(ctx context.Context, m plan.Member, found schema.Shape) error {
	have, want := fitted(m, c.rec.Found[m.Node]), fitted(m, found)
	if c.rec.hasJoined(m.Node) || have.CPUs == want.CPUs && have.Shape == want.Shape {
		return nil
	}
	if err := c.updateRecord(ctx, func(r *record) { r.setFound(m.Node, found) }); err != nil {
		return err
	}
	return waiting("node %s: its line in slurm.conf lacks the sockets, cores and threads of the host; the next plan writes them before the join", m.Node)
}

// nodeLine matches the line of a node in slurm.conf, with its shape if it has one.
var nodeLine = regexp.MustCompile(`(?m)^NodeName=(\S+) .*?(?: Sockets=(\d+) CoresPerSocket=(\d+) ThreadsPerCore=(\d+))? RealMemory=`)

// nodeLines returns the shape in the line of each node in slurm.conf; the zero value: its line has CPUs only.
func nodeLines(conf []byte) map[string]schema.Shape {
	lines := map[string]schema.Shape{}
	for _, m := range nodeLine.FindAllStringSubmatch(string(conf), -1) {
		var n [3]int
		for i := range n {
			n[i], _ = strconv.Atoi(m[i+2]) // digits, or nothing
		}
		lines[m[1]] = schema.Shape{Sockets: n[0], CoresPerSocket: n[1], ThreadsPerCore: n[2]}
	}
	return lines
}
