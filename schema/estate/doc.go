// Package estate judges the documents of a whole estate together: it checks
// references and values that must be unique, and decides which changes come into force.
//
// An estate is cut into trees: platform/, and one tenant tree for each tenant. An
// error in a document holds it and the documents that need it; no tenant's document decides what is in force for another tenant. Load reads
// a snapshot into schema.Desired and findings. InForce decides which changes of a
// snapshot come into force, and makes the tree in force.
//
// The package knows no Git, host or forge: it reads a schema.Snapshot.
//
// # Codes
//
// Codes are stable: people search for them and tools suppress by them. Findings in a
// single document have their codes in package schema/load.
//
//	part.unreadable          a part of the tree cannot be listed or read
//	part.too-large           a tenant of more than 20,000 files or 8 MiB, or a platform of more than 100,000 or 32 MiB
//	ref.missing-tenant           no tenant.yaml above
//	ref.missing-page             a page of an app that is not there (warning)
//	ref.missing-project          no project.yaml above, or no such project
//	ref.missing-app              no such app (warning where a policy denies it by name, or an admission names it)
//	ref.missing-version          no such version of the app
//	ref.not-admitted             an app of a tenant that the platform has not admitted (warning)
//	ref.missing-entitlement      the project is not entitled to the app (named by a shared runtime of the platform: warning)
//	ref.missing-attachment       a project attached to a shared runtime without terms (warning)
//	ref.missing-owner            a tenant or project that is not there (warning)
//	ref.missing-site             a region that is of no site (warning)
//	ref.no-node                  a region, SKU, GPU type or topology key that no node has (warning)
//	ref.missing-rates            a rate card that does not exist or does not apply to the tenant (warning)
//	ref.no-default-rates         rate cards without the default one (warning)
//	ref.node-role                a role of a node that is nearly that of a version, or the reverse (warning)
//	ref.missing-source           no such artifact source
//	ref.missing-service-account  no such service account where one may be taken from
//	ref.missing-role             a service account to which no role binding gives its role (warning)
//	ref.no-administrator         nobody may give roles at the platform or in a tenant (warning)
//	ref.missing-shared-runtime   no such shared runtime
//	ref.missing-instance         no such instance
//	ref.missing-member           no such member
//	ref.no-runtime               no runtime for the version's backend (at the version: warning)
//	ref.upgrade-step             a version that Berth does not run, only a step of an upgrade (warning)
//	ref.unknown-role             no such role in the manifest
//	ref.role-count               more or fewer members than the manifest allows
//	ref.role-gpus                GPUs for a role that has none
//	ref.later-day                a contribution that is declared for longer than the terms of its attachment (warning)
//	ref.other-tenant             a project of another tenant
//	ref.other-app                a shared runtime that runs another app
//	ref.not-attached             the project is not attached to the shared runtime
//	ref.contribution-denied      the attachment takes no nodes, or not so many
//	ref.operator-scope           the operator of a shared runtime lacks the permission to operate it
//	ref.node-not-reserved        a node that is not the project's to offer
//	conflict.unix-user           a Unix name with two uids or logins, a uid or login with two names (in two bindings: warning)
//	conflict.version             two AppVersions of an app with one spec.version
//	conflict.node-name           two nodes whose names differ only in case
//	conflict.node-address        two nodes at one address
//	conflict.currency            a rate card in another currency than the one that it replaces (warning)
//	conflict.node-facts          a node whose GPUs, topology key or address is mostly a mistake (warning)
//	conflict.uid                 two documents of one kind with one uid in a tenant tree or in platform/
//	conflict.region              a region of two sites
//	conflict.queue-map           two maps of the same queues for the same people
//	conflict.environment         two shared runtimes of a tenant in one environment
//	conflict.key                 a key of two service accounts of a tenant
//	conflict.artifact            one reference with two digests (warning)
//	conflict.attachment          a project attached twice
//	conflict.member-count        an operation removes a member that the declared count has
//	conflict.approval            approvals are asked for where nobody can give one (warning)
//	conflict.contribution        a node offered twice
//	conflict.repository          two tenants that name one repository (warning)
//	kind.no-effect               a document, or a field of one, that Berth checks and does not use yet (warning)
//	tenant.shadowed              not read, as the tenant has a repository of its own (warning)
//	tenant.no-repository         a directory given for a tenant that names no repository (warning)
package estate
