// Package object reads and creates Git objects (trees, commits and packs) in the
// stores of a mirror. It reads trees from their raw bytes, so that a hostile name
// becomes a finding instead of an error. It compares trees by hash, so that the
// cost follows the change and not the estate.
//
// It must not know remotes or the purpose of a branch.
package object
