// Package github shows on GitHub what Berth thinks of a pull request and what
// became of a merged one. It is a reconciler.Forge.
//
// Everything it writes is made so that it can be written again: before a write
// it reads, and what is there already is not written. That holds over restarts
// (nothing is remembered that cannot be found again), over lost replies and over
// two calls with the same content.
//
//   - A check run says whether the change is sound. Its external_id is made of
//     base, digest and content, so that an equal one is recognised. A completed
//     run is never touched again: news is a new run of the same name.
//   - One comment says what a merge would do, and later what it did. It is found
//     by a hidden marker and by its author, over all pages.
//
// The check comes first, so that nothing that goes wrong with a comment leaves a
// required check pending.
//
// All limits of the forge are kept in one place, transport: pace, hold-off,
// deadline, retry of reads. go-github v62 knows only part of them, so it is not
// shown any.
//
// The package must not know how a plan is made or rendered (it is given
// functions), nor Git, nor the loop beyond its port.
package github
