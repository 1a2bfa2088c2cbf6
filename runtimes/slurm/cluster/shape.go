package cluster

import (
	"fmt"
	"regexp"
	"strconv"

	"berth/reconciler/plan"
	"berth/runtimes/slurm/cli"
	"berth/schema"
)

// WithShape returns m with the CPUs and the shape in the line of its node, from what was found on its
// host: the zero value if nothing was. A declared shape counts. All threads, or all cores, of the
// host have its shape. Fewer CPUs are the first whole cores, as Slurm never shares a core between
// jobs: whole sockets if they are, else one socket. Threads are always those of the host: slurmd
// counts them in the order of cores, so with fewer two jobs would get one core.
func WithShape(m plan.Member, found schema.Shape) plan.Member {
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

// ShapeOf returns the shape that slurmd found; the zero value: some CPUs of its cores are off.
func ShapeOf(r cli.Resources) schema.Shape {
	return schema.Shape{Sockets: r.Sockets, CoresPerSocket: r.CoresPerSocket, ThreadsPerCore: r.ThreadsPerCore}
}

// UnusedHardware describes the hardware of a worker's host that Slurm does not use, or "".
func UnusedHardware(m plan.Member, found schema.Shape) string {
	has := WithShape(m, found)
	if found == (schema.Shape{}) || has.CPUs == found.Threads() && has.Shape == found {
		return ""
	}
	return fmt.Sprintf("Slurm has %d of the host's %d CPUs (sockets:cores:threads %s of %s), as the node declares %d", has.CPUs,
		found.Threads(), sct(has.Shape), sct(found), m.CPUs)
}

// sct returns a shape as sinfo shows it: sockets, cores of a socket and threads of a core.
func sct(s schema.Shape) string {
	return fmt.Sprintf("%d:%d:%d", s.Sockets, s.CoresPerSocket, s.ThreadsPerCore)
}

// CheckShape compares a declared shape with that of the host.
func CheckShape(m plan.Member, has cli.Resources) error {
	declared, found := m.Shape, ShapeOf(has)
	if found == (schema.Shape{}) || declared.Sockets <= found.Sockets && declared.Cores() <= found.Cores() &&
		declared.ThreadsPerCore <= found.ThreadsPerCore {
		return nil
	}
	return fmt.Errorf("host %s has %d sockets with %d cores of %d threads, but its node declares %d with %d of %d; correct sockets, "+
		"cores_per_socket and threads_per_core in the node's document, or leave them out",
		m.Node, found.Sockets, found.CoresPerSocket, found.ThreadsPerCore, declared.Sockets, declared.CoresPerSocket,
		declared.ThreadsPerCore)
}

// nodeLine matches the line of a node in slurm.conf, with its shape if it has one.
var nodeLine = regexp.MustCompile(`(?m)^NodeName=(\S+) .*?(?: Sockets=(\d+) CoresPerSocket=(\d+) ThreadsPerCore=(\d+))? RealMemory=`)

// NodeLines returns the shape in the line of each node in slurm.conf; the zero value: its line has CPUs only.
func NodeLines(conf []byte) map[string]schema.Shape {
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
