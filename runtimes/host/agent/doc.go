// Package agent is the far side of a host: it does the typed operations of
// runtimes.Host on the machine it runs on, for berth-host and, in the same
// process, for a local host.
//
// It speaks newline-delimited JSON on a pair of streams: a Hello once, then one
// Response for each Request, in order. Nothing that a request says reaches a
// shell, and nothing it says can widen what the compiled-in profiles allow.
// Contents and secrets reach neither the ledger nor an error.
//
// Several agents may run on one machine at once. What they share — epoch,
// ledger, accounts, services — is kept under locks of one file in the state
// directory; the epoch is held while an effect runs, so that a later leader's
// first effect waits for the last one of an earlier leader.
//
// It must not know who sends the requests, any scheduler, or any package of
// Berth but the contract: berth-host stays small.
package agent
