package agent

// SetAfterStep has f called after each change of a host's files.
func SetAfterStep(f func()) { afterStep = f }
