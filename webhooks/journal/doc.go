// Package journal stores webhook deliveries on disk until their work is done, so
// that an acknowledged delivery survives a crash.
//
// It knows deliveries by the forge's id and by the work they ask for: a repeated id
// is a duplicate only if it asks for the same work and that work is done. It must
// not know the meaning of the work.
//
// The journal is a cache: without it Berth loses only time, because it also polls.
// So unreadable lines are skipped, an unreadable file is renamed for later
// inspection, and a delivery that cannot be written in time is refused: the forge
// delivers it again.
package journal
