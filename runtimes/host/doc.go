// Package host reaches hosts: over SSH with pinned host keys, or on this
// machine. Both speak the protocol of berth-host (package agent) and are told
// apart by nobody above.
//
// A host is asked through sessions, each one run of berth-host that answers one
// request at a time; a few are kept for each host, so that calls may run side by
// side. Every call has a deadline, and a session that does not answer by then is
// hung up, never waited for. What became of a call is said exactly: the host
// could not be asked, the outcome is uncertain, or this operation failed.
//
// It must not know what the operations are for, any scheduler, or Git.
package host
