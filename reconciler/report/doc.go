// Package report shows a plan to people and programs: as the comment on a pull
// request, as two checks, as lines in a terminal, as JSON and as JUnit's XML; and
// what became of it, and answers to what people ask. It is pure, and it must not
// know a forge, a runtime or where a plan came from: it takes plan.Proposal,
// plan.Rollout and plan.Answer as they are and returns text.
//
// A comment is read from the top, and may be left anywhere: what a reviewer must
// know stands before what they may want to. Nothing in it changes by itself.
//
// Everything that came out of an estate or from a host is hostile until it is
// neutralised here: it mentions nobody, links nowhere, opens and closes no
// markup and moves no terminal's cursor.
package report
