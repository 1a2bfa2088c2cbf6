package loop

// IsWritten reports whether everything that was recorded is on the remote.
func (r *Reconciler) IsWritten() bool { return r.status.IsWritten() }
