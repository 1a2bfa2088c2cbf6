// Package reconciler is the contract between the loop and the world around it:
// the ports (an estate's Git repository, a forge), what passes through them, the
// items of the queues, and the errors.
//
// It must not know an adapter, CUE, a work queue or how a report looks, and
// decides nothing.
package reconciler
