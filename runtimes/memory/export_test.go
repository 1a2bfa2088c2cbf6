package memory

import "fmt"

// SetForeign makes a conflict on a node with something that Berth did not make; empty:
// no conflict.
func (w *World) SetForeign(node, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.foreign[node] = what
}

// Snapshot describes the state of a node.
func (w *World) Snapshot(node string) map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[string]string{"foreign": w.foreign[node]}
	for key, u := range w.units {
		if m, ok := u.Applied.Control(); ok && m.Node == node {
			out["record of "+key.String()] = fmt.Sprintf("%+v complete %t", u.Applied, u.Complete)
		}
		for name, m := range u.Members {
			if m.Node == node {
				out[name+" of "+key.String()] = fmt.Sprintf("%+v", m)
			}
		}
	}
	return out
}
