// Package object reads and makes Git objects: trees, commits and packs, in the
// stores of a mirror. Trees are read from their raw bytes, so that a hostile name is
// a finding and not an error, and compared by hash, so that the cost follows the
// change and not the estate.
//
// It must not know a remote or what a branch is for.
package object
