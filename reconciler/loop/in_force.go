package loop

import (
	"sync"

	"berth/reconciler"
)

// inForce holds the state in force, and the reason why main's commit cannot be taken
// over. Safe for concurrent use.
type inForce struct {
	metrics *Metrics

	mu      sync.Mutex
	state   *reconciler.State // nil before the first decision
	tip     string            // last fetched commit of main
	frozen  string            // why synchronization is frozen; "": it is not
	repoErr error             // of the last use of the repository
	ready   chan struct{}     // closed once the state in force is known
}

func newInForce(m *Metrics) *inForce { return &inForce{metrics: m, ready: make(chan struct{})} }

// current returns the state in force; nil before the first decision.
func (f *inForce) current() *reconciler.State {
	st, _, _ := f.get()
	return st
}

// get returns a consistent copy of the state in force, the last fetched tip of main,
// and the reason of a freeze ("" without one).
func (f *inForce) get() (st *reconciler.State, tip, frozen string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state, f.tip, f.frozen
}

// set replaces the state in force.
func (f *inForce) set(st *reconciler.State) {
	f.metrics.placed(st.Placement)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state = st
}

// setTip records the tip of main.
func (f *inForce) setTip(commit string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tip = commit
}

// setFrozen records the reason of a freeze; "" ends it. It returns true if that
// changed.
func (f *inForce) setFrozen(why string) (changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed, f.frozen = f.frozen != why, why
	return changed
}

// setReady records that the state in force is known.
func (f *inForce) setReady() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.known() {
		close(f.ready)
	}
}

// known returns true once the state in force is known.
func (f *inForce) known() bool {
	select {
	case <-f.ready:
		return true
	default:
		return false
	}
}

// setRepositoryError records the result of the last use of the repository.
func (f *inForce) setRepositoryError(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.repoErr = err
}

// repositoryError returns the error of the last use of the repository, or nil.
func (f *inForce) repositoryError() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.repoErr
}
