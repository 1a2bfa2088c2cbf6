package agent

// SetAfterStep sets a function that is called after each change of a file.
func SetAfterStep(f func()) { afterStep = f }

// UseDirectory sets the program that queries directory services.
func (a *Agent) UseDirectory(getent string) { a.users.getent = getent }
