// Package composed is an estate of which tenants have repositories of their own
// (requirement F8): it fetches them, composes their trees with the platform's on a
// branch that only Berth writes, and reads that branch like any estate.
//
// It must not know what a document means but for what Composition.Document says.
package composed
