// Package policy says what shall run of what is declared: it lays the layers
// of policy over each other, narrows or refuses instances by them, says which
// artifact sources may be used, fills in what the catalog says, tells who may
// submit work, and explains each value by the layers that made it.
//
// Layers are, from wide to narrow: the platform's policies by name, the
// tenant's, the entitlement's overrides. Each can only narrow what those above
// it allow: lists intersect, maxima take the least, and a key that a layer does
// not have is as the layers above it say. A layer that says more than those
// above it has no effect with it, and Wider tells of it.
//
// An instance that exists and that a rule refuses is left as it is, unless the
// policies say the day on which it is stopped and that day has come (At).
//
// The package is pure. It must not know Git, a scheduler, a node's state or
// the time. Each tenant is judged alone, so that callers may keep what they
// know of tenants that did not change.
package policy
