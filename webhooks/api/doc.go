// Package api is Berth's API: /api/v1/… shows what is in force in an estate and its status, and gives
// people and service accounts the queues and nodes of running units (requirements A15, A16, A18, B1, B2).
// openapi.yaml describes it for programs, and is served too.
//
//	TOKEN=$(berth token --service-account physics.lattice/ci --key id_ed25519 --audience campus)
//	curl -H "Authorization: Bearer $TOKEN" https://HOST/api/v1/projects/physics.lattice/app-instances
//
// A person has a token of the identity provider or one that berth.yaml names, and the roles in force of
// their login.
// The API does not change the estate: such a write is a merged pull request, and the answer to a write
// request names the file to change. Jobs and operations on nodes are not in the estate: a unit that runs is
// asked, and each effect is recorded.
//
// org_id is the name of a tenant, project_id is <tenant>.<project>. The id of any
// other resource is its document's uid, else its name. Paths accept both; a name
// takes precedence over another document's uid.
//
// created_at and updated_at come from the commits. deleted_at of an instance, which is
// read by its id after its deletion, comes from the event log. No answer has the time of
// another document's deletion, or who last changed an entitlement: the Git history of the
// file in declared_in has them.
//
// The path alone decides whose resources are read. A resource that the caller may
// not read is answered exactly like one that does not exist. Platform users read
// tenants' resources under /api/v1/admin only, with a reason that is audited.
//
// Everything before the token check is hostile: work and memory for a stranger are
// bounded, and an answer repeats input only as JSON.
//
// A file names files below it only: failures and shapes are at the bottom, then come the reading of a
// view, the call with its route, what a caller may do, and the handlers. The table of routes and the
// API are on top. One type is the exception: a route holds its handler, whose call holds the route.
//
// The package must not know Git, any scheduler, configuration files, how the loop obtains the
// state, or how a unit is asked.
package api
