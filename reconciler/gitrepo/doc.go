// Package gitrepo is an estate in Git: a bare mirror that is fetched, read
// without a work tree, and written to by compare-and-swap (DESIGN §3). It
// implements reconciler.Repo.
//
// The mirror is a cache. What is broken in it is thrown away and fetched again;
// nothing is known from it that the remote does not say too. Trees are read
// from their raw bytes, so that a hostile name is a finding and not an error,
// and compared by hash, so that the cost follows the change and not the estate.
//
// Writing builds the few changed trees itself, packs exactly the new objects
// and sends them in one request that names the tip they were built on. Nothing
// here walks history to write.
//
// Where tenants have repositories of their own the estate is composed of theirs
// and the platform's, on a branch that only Berth writes; see Composed.
//
// The package must not know what a document means, which runtime there is, or
// what the loop does with a commit. Merging and walking history for a log use
// the git program (2.38 or newer), started without a shell and without any of
// the user's configuration.
package gitrepo
