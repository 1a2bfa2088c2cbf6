// Package runtimes is the contract between Berth and what runs an app.
//
// A runtime makes units real: it observes them, applies actions of a plan to
// them, and brings its own schema and rules as data. Each adapter is a leaf
// below this package and imports no other; all of them pass runtimetest.
//
// The package also says what a runtime may ask of a host (Host): typed
// operations without a shell, done by berth-host on the far side.
//
// It must not know Git, a forge, or any one scheduler.
package runtimes
