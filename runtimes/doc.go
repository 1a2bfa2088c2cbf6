// Package runtimes is the contract between Berth and what runs an app.
//
// A runtime deploys units: it observes them and applies the actions of a plan. Each
// backend is a package below this one and imports no other backend. All backends
// pass the suite in runtimetest.
//
// The package also defines the typed operations on a host (Host), which berth-host
// does there without a shell.
//
// It must not know Git, a forge, or any one scheduler.
package runtimes
