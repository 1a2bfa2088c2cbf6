package status

// tip is the last commit of the branch that this daemon wrote or found. The lock of the Writer guards it.
type tip struct {
	commit string        // "" before this daemon leads
	ended  bool          // this daemon writes no more
	moved  chan struct{} // closed by the next change
}

func (t *tip) set(commit string) {
	t.commit = commit
	close(t.moved)
	t.moved = make(chan struct{})
}

// Tip returns the commit of berth/status that this daemon wrote or read last.
func (w *Writer) Tip() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tip.commit
}

// FollowTip is Tip with a channel that is closed when the tip moves or leadership ends. leads is false before and
// after leadership.
func (w *Writer) FollowTip() (commit string, moved <-chan struct{}, leads bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tip.commit, w.tip.moved, w.tip.commit != "" && !w.tip.ended
}

// endTip tells those who wait for the tip that this daemon writes no more.
func (w *Writer) endTip() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tip.ended = true
	w.tip.set(w.tip.commit)
}
