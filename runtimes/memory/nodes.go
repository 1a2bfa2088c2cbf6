package memory

import (
	"context"
	"fmt"
	"time"

	"berth/runtimes"
	"berth/schema"
)

// SetResponds sets what the schedulers say about a node: that it responds, as every node does at first, or that it does not.
func (w *World) SetResponds(node string, responds bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent[node] = !responds
}

// SetFacts changes the facts of a node, which are else those that its document declares. change must not keep its argument.
func (w *World) SetFacts(node string, change func(*runtimes.HostFacts)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.facts[node] = change
}

// ReadFacts implements runtimes.NodeReader. A host has what its document declares.
func (w *World) ReadFacts(ctx context.Context, n *schema.Node) (*runtimes.HostFacts, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls["facts"]++
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if w.down[n.Key.Name] {
		return nil, fmt.Errorf("host %s: %w", n.Key.Name, runtimes.ErrUnreachable)
	}
	c, gpus := n.Spec.Capacity, 0
	for _, g := range c.GPUs {
		gpus += g.Count
	}
	f := &runtimes.HostFacts{
		At: time.Now().UTC(), Load: &runtimes.LoadFacts{}, CPUs: c.CPUs, MemoryMiB: c.MemoryMiB, AvailableMiB: c.MemoryMiB, GPUs: &gpus,
		Kernel: "memory", BootID: "memory-" + n.Key.Name, Version: "memory",
		Disks: []runtimes.DiskFacts{{Path: "/", SizeMiB: int64(c.DiskGiB) << 10, FreeMiB: int64(c.DiskGiB) << 10}},
	}
	if change := w.facts[n.Key.Name]; change != nil {
		change(f)
	}
	return f, nil
}
