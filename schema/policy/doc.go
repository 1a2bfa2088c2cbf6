// Package policy says what shall run of what is declared: it lays the layers
// of policy over each other, narrows or refuses instances by them, fills in
// what the catalog says, and tells who may submit work.
//
// Layers are, from wide to narrow: the platform's policies, the tenant's, the
// entitlement's overrides. Each can only narrow what those above it allow:
// lists intersect, maxima take the least.
//
// The package is pure. It must not know Git, a scheduler, a node's state or
// the time. Each tenant is judged alone, so that callers may keep what they
// know of tenants that did not change.
package policy
