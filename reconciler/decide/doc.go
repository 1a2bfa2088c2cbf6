// Package decide turns commits into decisions: what of a new main comes into force,
// and what a proposed change would do. The daemon, the checks on pull requests and
// `berth plan` all decide here, so that they cannot differ.
//
// It combines the loader, policy and the planner, and adds the rules that need both
// sides of a change: permissions, deletions and moves. It knows no forge, no runtime
// and no repository, and it has no effect.
package decide
