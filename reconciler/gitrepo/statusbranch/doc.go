// Package statusbranch reads and writes the branch berth/status. The branch holds
// the statuses, the revision, the reviews of pull requests, the overview for
// people, and the logs of events and audit records.
//
// It must not know how the branch is fetched or the meaning of a status.
package statusbranch
