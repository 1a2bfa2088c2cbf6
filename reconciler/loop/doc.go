// Package loop keeps one estate: queues of items, and one reconciliation for each
// item. It is level-triggered: an item names a resource, not an event, and the
// observation decides everything (DESIGN §4).
//
// It uses the ports of package reconciler. It must not know an adapter, Git's storage,
// a forge's API or the layout of a report.
package loop
