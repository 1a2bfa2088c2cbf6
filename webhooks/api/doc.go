// Package api is Berth's read API: GET /api/v1/…, what is in force in an estate
// and how it is, for people and service accounts (requirements A15, A16, A18,
// B2). openapi.yaml says all of it to machines, and is served too.
//
//	TOKEN=$(berth token --service-account physics.lattice/ci --key id_ed25519 --audience campus)
//	curl -H "Authorization: Bearer $TOKEN" https://HOST/api/v1/projects/physics.lattice/app-instances
//
// A person has a token that berth.yaml names, and the roles in force of their
// login. Nothing is written here: a write is a merged pull request, and each
// answer to one says which file to change.
//
// org_id is the name of a tenant, project_id is <tenant>.<project>. Other things
// are called by the uid their document declares, else by their name; both are
// taken, and a name goes before another document's uid.
//
// When a thing was made and changed is what the commits say that did it. When it
// was taken away, and who last changed an entitlement, are in no answer: Git's
// history of the file in declared_in tells.
//
// The path alone says whose things are asked for. What who asks may not see is
// not there, in the same words as what is not there at all. People of the
// platform see tenants' things under /api/v1/admin only, for a reason that they
// give and that is audited.
//
// Everything on this side of the token is hostile: work and memory for a
// stranger are bounded, and no answer repeats what he sent but in JSON.
//
// The package must not know Git, a runtime, configuration files, or how the loop
// comes to know what it shows.
package api
