// Package statusbranch reads and writes the branch berth/status: the statuses, the
// revision, the reviews of pull requests, the overview for people, and the logs of
// events and audit records.
//
// It must not know how the branch is fetched or what a status means.
package statusbranch
