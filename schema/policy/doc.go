// Package policy computes the effective estate. It merges the layers of policy,
// narrows or denies instances by them, decides which artifact sources may be used,
// fills in the values of the catalogue, lists the users with permission to submit work, and
// explains each value by the layers that set it.
//
// The layers are, from wide to narrow: the platform's policies by name, the
// tenant's, the platform's admission of a tenant's own app, the entitlement's overrides. Each can only narrow the layers above it:
// lists intersect, the least maximum counts, and a missing key changes nothing. A
// layer that allows more than those above it does not widen them, and Wider reports
// it.
//
// An existing instance that a rule denies is left running, unless the policies set
// a day on which it is stopped and that day has come (At).
//
// # Codes
//
// Findings of a rule have the code "policy." and the rule, such as
// policy.allowed_regions. CapacityChecker also warns of instances that can never run:
//
//	capacity.role            no node that the project may use has the role (warning)
//	capacity.region          no node for the role is in the regions of the instance (warning)
//	capacity.sku             no node for the role is of the SKU (warning)
//	capacity.gpus            no node of the SKU has the GPUs, or so many (warning)
//	capacity.cpus            no node has so many CPUs (warning)
//	capacity.memory          no node has so much memory (warning)
//	capacity.labels          no node has a label that a role asks for (warning)
//	capacity.disk            no node has so much disk, or none declares its disk (warning)
//	capacity.cordoned        every node that could take a member is cordoned (warning)
//	capacity.members         more members than nodes that could take one (warning)
//	capacity.no-workers      no role that runs jobs has a member (warning)
//	policy.unusable-node     a node whose region or SKU no instance is allowed (warning)
//	policy.nothing-allowed   policies that together allow no region or SKU (warning)
//	policy.useless           a maximum of the platform that another of its policies undercuts (warning)
//	policy.useless-admission an admission that no version of the app meets (warning)
//	policy.ignored-region    a region that an instance asks for and is not allowed (warning)
//
// The package is pure. It must not know Git, a scheduler, a node's state or the
// time. Each tenant is evaluated alone, so that callers may keep the results of
// tenants that did not change.
package policy
