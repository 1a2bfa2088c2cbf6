// Package pulls serves the pull requests of an estate: it plans what each would
// do, publishes the plan at the forge, answers the commands in their comments, and
// reports the roll-out after a merge.
//
// It must not know the loop, any one forge, or how hosts are changed. Options has
// the functions of the loop and of the status branch that it calls.
package pulls
