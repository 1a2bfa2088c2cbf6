// Package github is GitHub as a forge.Kind: its section of berth.yaml, its webhook
// deliveries, its credentials and limits, and its client, which implements
// reconciler.Forge.
//
// Every write is idempotent: Berth reads first, and skips a write whose result is
// already there. This holds over restarts, lost replies and concurrent calls with the
// same content. Package webhooks/forgetest tests it.
//
//   - A check is a check run, or a commit status where only those may be written. A
//     run's external_id is the estate and the check's key, which identifies an equal
//     run. A completed run never changes: a new result is a new run of the same name.
//   - One comment on a pull request has all of Berth's text, in parts. Berth finds it
//     by a hidden marker and by its author, over all pages.
//   - A command counts as answered if Berth's comment lists it, or Berth reacted to it.
//
// One place knows the forge's limits: transport with its Pacer has rate, hold-off,
// deadlines and retries of reads. go-github v62 handles only some limits, so transport
// hides them from it.
//
// The package must not know how a plan is made or rendered, Git, or the loop beyond its
// port.
package github
