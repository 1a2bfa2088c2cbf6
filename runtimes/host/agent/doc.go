// Package agent does the typed operations of runtimes.Host on the machine it runs
// on, in berth-host.
//
// It speaks newline-delimited JSON on a pair of streams: one Hello, then one
// Response for each Request, in order. It never starts a shell, and a request
// cannot extend what the compiled-in profiles allow. Neither the ledger nor an
// error contains file contents or secrets.
//
// Several agents may run on one machine. They share epoch, ledger, accounts and
// services, each under a lock in one file of the state directory. The epoch is
// locked during an effect, so the first effect of a later leader waits for the last
// one of an earlier leader.
//
// It must not know who sends the requests, any scheduler, or any package of
// Berth but the contract: berth-host stays small.
package agent
