// Package plan makes a Plan from the effective estate (schema.Effective) and the
// observed state (Observed). A Plan is data that can be printed, compared, digested,
// stored and rejected; nothing here has an effect.
//
// The package is pure: no context, no clock, no I/O, no goroutine; equal input gives
// equal bytes. It must not know Git, a forge, a host or a runtime. Rules carry a
// runtime's knowledge of a change.
package plan
