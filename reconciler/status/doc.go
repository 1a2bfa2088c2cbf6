// Package status writes the branch berth/status. A Writer keeps the status of
// every resource of one estate, gathers changes within a window into one commit,
// and pushes it by compare-and-swap. Everything that is recorded and not pushed
// yet stays in memory and is pushed later: an unreachable remote loses nothing.
//
// It must not know how statuses come about, Git's storage or a forge.
package status
