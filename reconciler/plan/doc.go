// Package plan decides what to do: from what shall run (schema.Effective) and
// what runs (Observed) it makes a Plan, which is data. It can be printed,
// compared, digested, stored and refused; nothing here has an effect.
//
// The package is pure: no context, no clock, no I/O, no goroutine; equal input
// gives equal bytes. It must not know Git, a forge, a host or what runs an
// instance. What a runtime knows of a change without looking, it brings as Rules.
package plan
