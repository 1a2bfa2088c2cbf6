// Package reconciler is the loop: a queue of keys, and what is done for one.
// It is level-triggered: a key says where to look, never what happened, and
// what is observed decides everything (DESIGN §4).
//
// The interfaces it needs of the world stand here, beside their one user. It
// must not know an adapter, Git's storage, a forge's API or how a report looks.
package reconciler
