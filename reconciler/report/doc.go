// Package report shows a plan to people and programs: as the comment on a pull
// request, as a check, as lines in a terminal and as JSON. It is pure, and it
// must not know a forge, a runtime or where a plan came from: it takes
// plan.Proposal and plan.Rollout as they are and returns text.
//
// Everything that came out of an estate or from a host is hostile until it is
// neutralised here: it mentions nobody, links nowhere, opens and closes no
// markup and moves no terminal's cursor.
package report
