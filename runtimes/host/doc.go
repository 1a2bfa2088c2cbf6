// Package host reaches hosts over SSH with pinned host keys. It speaks
// the protocol of berth-host (package agent).
//
// A session is one run of berth-host, which answers one request at a time. A few
// sessions are kept for each host, so calls can run in parallel. Every call has a
// deadline, and a session that does not answer by then is closed. The error of a
// call distinguishes an unreachable host, an uncertain outcome and a failed
// operation.
//
// It must not know the purpose of operations, any scheduler, or Git.
package host
