package runtimes

import (
	"context"
	"errors"

	"berth/reconciler/plan"
	"berth/schema"
)

// NodeReader reads the facts of the hosts of nodes, whether or not a unit uses them (requirement E5).
type NodeReader interface {
	// ReadFacts returns the facts of a node's host. The error is an *OpError or a *HelperError if the host answers and its answer
	// is not usable.
	ReadFacts(ctx context.Context, n *schema.Node) (*HostFacts, error)
}

// NodeHosts is the NodeReader of hosts with berth-host. It uses the sessions of their other calls.
type NodeHosts struct{ Hosts Hosts }

// ReadFacts implements NodeReader.
func (h NodeHosts) ReadFacts(ctx context.Context, n *schema.Node) (*HostFacts, error) {
	var devices []string
	for _, g := range n.Spec.Capacity.GPUs {
		files, err := g.DeviceFiles()
		if err == nil { // the unit on the node reports an invalid one
			devices = append(devices, files...)
		}
	}
	host := h.Hosts.Host(plan.Member{Node: n.Key.Name, Address: n.Spec.Address, SSHPort: n.Spec.SSHPort})
	res, err := host.Do(ctx, Stamp{}, Op{Facts: &ReadFacts{Devices: devices[:min(len(devices), MaxDevices)]}})
	switch {
	case err != nil:
		return nil, err
	case len(res) != 1 || res[0].Facts == nil:
		return nil, &OpError{Host: host.Name(), Op: "facts", Code: CodeInvalid, Message: "the answer has no facts"}
	}
	return res[0].Facts, nil
}

// IsAnswer reports whether the error of a NodeReader is the answer of the host.
func IsAnswer(err error) bool {
	var failed *OpError
	var helper *HelperError
	return errors.As(err, &failed) || errors.As(err, &helper)
}
