// Package loop keeps one estate as declared. It takes items from queues and reconciles
// each. It is level-triggered: an item names a resource, not an event, and what is
// declared and observed now decides what to do.
//
// It uses the ports of package reconciler. It must not know an adapter, Git's storage,
// a forge's API or the layout of a report.
package loop
