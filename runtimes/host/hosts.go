package host

import (
	"sync"
	"time"

	"berth/reconciler/plan"
	"berth/runtimes"
)

// hosts keeps one remote for each host.
type hosts struct {
	opener func(plan.Member) opener
	margin time.Duration // of each remote
	mu     sync.Mutex
	by     map[place]*remote
	closed bool
}

// place identifies a host.
type place struct {
	node, address string
	port          int
}

func newHosts(o func(plan.Member) opener) *hosts {
	return &hosts{opener: o, margin: defaultMargin, by: map[place]*remote{}}
}

// Host implements runtimes.Hosts.
func (h *hosts) Host(m plan.Member) runtimes.Host {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := place{m.Node, m.Address, m.SSHPort}
	f, ok := h.by[p]
	if !ok {
		f = newRemote(m.Node, h.opener(m))
		f.closed, f.margin = h.closed, h.margin
		h.by[p] = f
	}
	return f
}

// Close closes all sessions and ends their processes.
func (h *hosts) Close() error {
	h.mu.Lock()
	h.closed = true
	all := make([]*remote, 0, len(h.by))
	for _, f := range h.by {
		all = append(all, f)
	}
	h.mu.Unlock()
	var wait sync.WaitGroup
	for _, f := range all {
		wait.Go(f.shut)
	}
	wait.Wait()
	return nil
}
