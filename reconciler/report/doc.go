// Package report writes a plan for people and programs: as a comment on a pull
// request, as two checks, as text for a terminal, as JSON and as JUnit XML. It also
// writes the roll-out of a merge and the answers to commands. It is pure. It takes
// plan.Proposal, plan.Rollout and plan.Answer, and knows no forge and no runtime.
//
// A reviewer reads a comment from the top and may stop anywhere, so the verdict
// comes first and details are folded. A comment changes only if the plan does.
//
// All text from an estate or a host is hostile until this package escapes it: it
// mentions nobody, makes no link, opens and closes no markup and moves no terminal
// cursor. The only links are those to files of the estate.
package report
