// Package loop keeps one estate as declared. It takes items from queues and reconciles
// each. It is level-triggered: an item names a resource, not an event, and what is
// declared and observed now decides what to do.
//
// A file names files below it only: values and comparisons of states are at the bottom, then come the
// queues and the recorder, the parts of a unit's status, and the tasks with their steps. The
// Reconciler and what it answers are on top.
//
// It uses the ports of package reconciler. It must not know an adapter, Git's storage,
// a forge's API or the layout of a report.
package loop
