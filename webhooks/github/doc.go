// Package github is a reconciler.Forge: it reads pull requests at GitHub, and
// holds Berth's conversation with people there.
//
// Everything it writes is made so that it can be written again: before a write
// it reads, and what is there already is not written. That holds over restarts
// (nothing is remembered that cannot be found again), over lost replies and over
// two calls with the same content. Package webhooks/forgetest holds it to that.
//
//   - A check is a check run, or a commit status where only those may be written.
//     A run's external_id is the estate and the check's key, so that an equal one is
//     recognised.
//     A completed run is never touched again: news is a new run of the same name.
//   - One comment on a pull request says all that Berth has to say there, in parts.
//     It is found by a hidden marker and by its author, over all pages.
//   - A remark of a person's is answered once Berth reacted to it.
//
// All limits of the forge are kept in one place, transport and its Pacer: pace,
// hold-off, deadline, retry of reads. go-github v62 knows only part of them, so
// it is not shown any.
//
// The package must not know how a plan is made or rendered, nor Git, nor the loop
// beyond its port.
package github
