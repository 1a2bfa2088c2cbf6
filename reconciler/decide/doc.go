// Package decide turns commits into decisions: what of a new main comes into
// force, and what a change that is only proposed would do. The daemon, the
// checks on pull requests and `berth plan` all decide here, so that they cannot
// differ.
//
// It composes the reader, policy and the planner and adds the rules that need
// both sides of a change: what policy refuses and what moved is held. It must
// not know a forge, a runtime or where a repository comes from, and it has no
// effect.
package decide
