// Package load is the one gate between the bytes of an estate and the rest of
// Berth: it turns a Snapshot into schema.Desired and findings at exact places.
//
// Each file goes through size and depth caps, one YAML node tree with
// positions, exact keys (no duplicates, aliases, anchors, merge keys, tags,
// second documents, invisible characters), the CUE definition of its kind, and
// becomes a Go value. Then documents are judged in each other's company. CUE,
// policy and runtimes see only what passed; nothing reads the YAML again.
//
// What is wrong in one file holds that file and those that need it, nobody
// else; InForce makes that a tree.
//
// The package knows no Git, host or forge; a runtime's own definitions come to
// it as CUE source, as data.
//
// # Codes
//
// Codes are stable: people grep for them and tools suppress by them.
//
//	file.too-large           more than 64 KiB
//	file.encoding            not UTF-8
//	file.bom                 a byte order mark
//	file.control             control, invisible or bidirectional characters, or heaps of combining marks
//	file.unreadable          the reader failed on the file
//	file.more                findings beyond the first 25 of a file (note)
//	part.unreadable          a part of the tree cannot be listed or read
//	part.too-large           a tenant of more than 20,000 files or 8 MiB, or a platform of more than 100,000 or 32 MiB
//	path.misplaced           no kind of document stands at this path
//	path.stray               neither a document nor README.md
//	path.extension           .yml or .json instead of .yaml
//	path.case                upper case in the path
//	path.name                a name that is no identifier
//	path.name-mismatch       metadata.name is not what the path says
//	path.kind                a document of another kind stands here
//	path.symlink             a symbolic link
//	path.executable          the executable bit
//	path.submodule           a submodule
//	path.mode                some other thing that is no plain file
//	yaml.syntax              not YAML
//	yaml.tab                 a tab in the indentation
//	yaml.empty               no document
//	yaml.second-document     more than one document
//	yaml.not-a-mapping       the document is a list or a scalar
//	yaml.depth               nested too deep
//	yaml.nodes               too many values
//	yaml.alias               an alias or anchor
//	yaml.merge               a merge key
//	yaml.tag                 an explicit or unknown tag
//	yaml.key                 a key that is missing or no text
//	yaml.duplicate-key       the same key twice
//	yaml.null                a field without a value
//	yaml.scalar              a scalar that readers take for different values
//	schema.api-version       another apiVersion
//	schema.kind              no such kind
//	schema.unknown-field     a field the kind has not
//	schema.missing-field     a field the kind must have
//	schema.type              a value of another type
//	schema.enum              none of the allowed values
//	schema.range             a number out of bounds
//	schema.pattern           text (or a key) of another form
//	schema.length            a list that is too short, or a mapping that is too long
//	schema.rule              a document that contradicts itself
//	schema.no-effect         a field that changes nothing here (warning)
//	schema.value             refused by the definition in some other way
//	ref.missing-tenant           no tenant.yaml above
//	ref.missing-project          no project.yaml above, or no such project
//	ref.missing-app              no such app (denied by name: warning)
//	ref.missing-version          no such version of the app
//	ref.missing-entitlement      the project is not entitled to the app (named by a shared runtime of the platform: warning)
//	ref.missing-attachment       a project attached to a shared runtime without terms (warning)
//	ref.missing-owner            a tenant or project that is not there (warning)
//	ref.missing-site             a region that is of no site (warning)
//	ref.no-node                  a region, SKU, GPU type or topology key that no node has (warning)
//	ref.missing-source           no such artifact source
//	ref.missing-service-account  no such service account where one may be taken from
//	ref.missing-role             a service account to which no role binding gives its role (warning)
//	ref.no-administrator         nobody may give roles at the platform or in a tenant (warning)
//	ref.missing-shared-runtime   no such shared runtime
//	ref.missing-instance         no such instance
//	ref.missing-member           no such member
//	ref.no-runtime               no runtime for the version's backend
//	ref.unknown-role             no such role in the manifest
//	ref.role-count               more or fewer members than the manifest allows
//	ref.role-gpus                GPUs for a role that has none
//	ref.other-tenant             a project of another tenant
//	ref.other-app                a shared runtime that runs another app
//	ref.not-attached             the project is not attached to the shared runtime
//	ref.contribution-denied      the attachment takes no nodes, or not so many
//	ref.node-not-reserved        a node that is not the project's to offer
//	conflict.unix-user           one Unix name with two uids or logins, or one uid with two names
//	conflict.version             two AppVersions of an app with one spec.version
//	conflict.node-address        two nodes at one address
//	conflict.device              one device file named twice
//	conflict.uid                 two documents of one kind with one uid in a tenant tree or in platform/
//	conflict.region              a region of two sites
//	conflict.queue-map           two maps of the same queues for the same people
//	conflict.environment         two shared runtimes of a tenant in one environment
//	conflict.key                 a key of two service accounts of a tenant
//	conflict.attachment          a project attached twice
//	conflict.approval            approvals are asked for where nobody can give one (warning)
//	conflict.contribution        a node offered twice
//	conflict.repository          two tenants that name one repository (warning)
//	kind.no-effect               a document that Berth checks and does nothing for yet (warning)
//	tenant.shadowed              not read, as the tenant has a repository of its own (warning)
//	tenant.no-repository         a directory given for a tenant that names no repository (warning)
package load
