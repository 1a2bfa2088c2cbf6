// Package api is Berth's read API: GET /api/v1/… shows what is in force in an estate
// and its status, to people and service accounts (requirements A15, A16, A18, B2).
// openapi.yaml describes it for programs, and is served too.
//
//	TOKEN=$(berth token --service-account physics.lattice/ci --key id_ed25519 --audience campus)
//	curl -H "Authorization: Bearer $TOKEN" https://HOST/api/v1/projects/physics.lattice/app-instances
//
// A person has a token of the identity provider or one that berth.yaml names, and the roles in force of
// their login.
// The API writes nothing: a write is a merged pull request, and the answer to a
// write request names the file to change.
//
// org_id is the name of a tenant, project_id is <tenant>.<project>. The id of any
// other resource is its document's uid, else its name. Paths accept both; a name
// takes precedence over another document's uid.
//
// created_at and updated_at come from the commits. The time of a deletion, and who
// last changed an entitlement, are not in any answer: the Git history of the file in
// declared_in has them.
//
// The path alone decides whose resources are read. A resource that the caller may
// not read is answered exactly like one that does not exist. Platform users read
// tenants' resources under /api/v1/admin only, with a reason that is audited.
//
// Everything before the token check is hostile: work and memory for a stranger are
// bounded, and an answer repeats input only as JSON.
//
// The package must not know Git, a runtime, configuration files, or how the loop
// obtains the state.
package api
