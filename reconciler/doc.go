// Package reconciler is the contract between the loop and everything around it:
// the ports (an estate's Git repository, its forge), the values that pass through
// them, the items of the queues, the state in force, and the errors.
//
// It holds no logic. It must not know an adapter, CUE, a work queue or how a
// report looks.
package reconciler
