// Package decide turns commits into decisions: which part of a new main comes into
// force, and the effect of a proposed change. The daemon, the checks on pull requests
// and `berth plan` all use it and therefore agree.
//
// It combines the loader, policy and the planner, and adds the rules that need both
// sides of a change: permissions, deletions and moves. It knows no forge, no runtime
// and no repository, and it has no effect.
package decide
