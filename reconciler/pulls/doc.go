// Package pulls serves the pull requests of an estate: it plans what each would
// do, publishes that at the forge, answers the commands in their comments, and
// reports what became of a merge.
//
// It must not know the loop, a certain forge, or how hosts are changed. What it
// needs of the loop and of the status branch is in Options.
package pulls
