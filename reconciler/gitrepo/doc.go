// Package gitrepo is an estate in Git: a bare mirror that is fetched, read
// without a work tree, and written by compare-and-swap. It implements
// reconciler.Repo.
//
// The mirror is a cache. A damaged mirror is deleted and fetched again; it holds
// no information that the remote lacks. Trees are read from their raw bytes, so
// that a hostile name becomes a finding instead of an error. They are compared by
// hash, so that the cost follows the change and not the estate.
//
// A write builds the few changed trees, packs exactly the new objects and sends
// them in one request that names the old tip. A write never walks history.
//
// If tenants have their own repositories, the estate is composed of them and the
// platform's repository, on a branch that only Berth writes; see package
// composed.
//
// The package must not know the meaning of documents, the runtimes, or the
// reconcile loop's use of a commit. Merging and walking history for a log use the
// git program (2.38 or newer), started without a shell and without the user's
// configuration.
package gitrepo
