package agent

// SetAfterStep sets a function that is called after each change of a file.
func SetAfterStep(f func()) { afterStep = f }
