// Package loop keeps one estate: queues of items, and one reconciliation for
// each item. It is level-triggered: an item says where to look, never what
// happened, and what is observed decides everything (DESIGN §4).
//
// It reaches the world through the ports of package reconciler. It must not know
// an adapter, Git's storage, a forge's API or how a report looks.
package loop
