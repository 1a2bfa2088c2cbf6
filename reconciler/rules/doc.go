// Package rules decides when the rules of an estate (HookRule) fire (requirement E8). Its input is the event log alone, and its
// times are those of the events: the same log and the same rules give the same firings.
//
// A firing is an event of its own. It is recorded in the same commit as the event that the rule fired on, so a crash loses no
// firing and doubles none.
//
// The package is pure: no context, no clock, no I/O. It must not know who carries out the effects of a rule, or where the log is.
package rules
