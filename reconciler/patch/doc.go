// Package patch puts a patch over a tree without a work tree: what an estate
// would be with a change that is no commit yet.
//
// A patch is applied as a commit made of it would be, and never guessed at:
// context that is elsewhere, or no longer as the patch has it, is a conflict at
// its place in the base. A patch comes from anywhere, so its size, its paths
// and its modes are bounded before anything is read.
//
// The package must not know what the files mean, and has no effect: nothing is
// written, not even objects.
package patch
