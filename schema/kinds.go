package schema

import (
	"slices"
	"strings"
)

// Kind is the kind of a document, spelt as in its `kind` field.
type Kind string

// The kinds Berth reads. Each has one row in the table below.
const (
	KindApp             Kind = "App"
	KindAppAdmission    Kind = "AppAdmission"
	KindAppVersion      Kind = "AppVersion"
	KindArtifact        Kind = "Artifact"
	KindArtifactSource  Kind = "ArtifactSource"
	KindAttachment      Kind = "Attachment"
	KindContribution    Kind = "Contribution"
	KindEntitlement     Kind = "Entitlement"
	KindHookRule        Kind = "HookRule"
	KindInstance        Kind = "Instance"
	KindMemberOperation Kind = "MemberOperation"
	KindNode            Kind = "Node"
	KindPause           Kind = "Pause"
	KindPolicy          Kind = "Policy"
	KindProject         Kind = "Project"
	KindQueueMap        Kind = "QueueMap"
	KindRateCard        Kind = "RateCard"
	KindRoleBinding     Kind = "RoleBinding"
	KindServiceAccount  Kind = "ServiceAccount"
	KindSharedRuntime   Kind = "SharedRuntime"
	KindSite            Kind = "Site"
	KindTenant          Kind = "Tenant"
)

// Removal is the effect of deleting a document of a kind. The deletion rule covers
// kinds with a Removal; deleting any other document needs its permission only.
type Removal string

// The effects of a deletion.
const (
	RemovalEnds   Removal = "ends"   // something that runs, or that others may use, ends
	RemovalDrops  Removal = "drops"  // capacity or content that others use is gone
	RemovalWidens Removal = "widens" // a limit is gone, so more is allowed
)

// KindInfo is the row of the table for one kind. A new kind takes one row, one CUE
// definition (schema/cue) and one Go struct, and a row for its permission in
// schema/authority if no permission fits; the loader, paths, status branch,
// JSON Schema and reference follow the table.
type KindInfo struct {
	Kind   Kind
	Places []PathPattern // of documents in an estate
	Status []PathPattern // of statuses on berth/status; empty: the kind has no status

	// Rank orders the checks: a document refers to documents of a lower rank only.
	// Documents of one rank do not refer to each other.
	Rank int
	// Removal is the effect of deleting a document; "": nothing depends on it.
	Removal Removal
	// Permission is the permission that any change needs; "": it depends on what
	// the change does (package authority).
	Permission string
	// Unit: Berth deploys the declared object as one whole, with its own plan.
	Unit bool
	// InsteadOfSuspend is the advice where `suspend: true` has no meaning; "": suspend is allowed.
	InsteadOfSuspend string
	// NoEffect lists what is checked and not used, of which each document that has it gets a
	// warning. Names and descriptions for people are not among them.
	NoEffect []NoEffect

	create func() Document
}

// NoEffect is a field of the documents of a kind that Berth checks and does not use.
type NoEffect struct {
	Field string
	SoFar string // the missing effect, in words that follow "so far"
}

// lastRank is the rank of kinds that no other kind refers to.
const lastRank = 11

// The table of kinds, sorted by kind.
var kinds = []KindInfo{
	{
		Kind: KindApp, Rank: 2, create: document[App],
		Places:           places("platform/catalog/{name}/app.yaml", "tenants/{tenant}/catalog/{name}/app.yaml"),
		InsteadOfSuspend: "set status to disabled for no new instances",
	},
	{
		Kind: KindAppAdmission, Rank: lastRank, create: document[AppAdmission], Permission: "apps.catalog.admit",
		Places:           places("platform/admissions/{parent}/{name}.yaml"),
		InsteadOfSuspend: "delete the file to withdraw the admission",
	},
	{
		Kind: KindAppVersion, Rank: 4, create: document[AppVersion],
		Places: places("platform/catalog/{parent}/{name}.yaml", "tenants/{tenant}/catalog/{parent}/{name}.yaml"),
		Status: places("platform/catalog/{parent}/{name}.yaml", "tenants/{tenant}/catalog/{parent}/{name}.yaml"),
	},
	{
		Kind: KindArtifact, Rank: lastRank, create: document[Artifact], Removal: RemovalDrops,
		Places: places("tenants/{tenant}/projects/{project}/artifacts/{name}.yaml"),
		Status: places("tenants/{tenant}/projects/{project}/artifacts/{name}.yaml"),
	},
	{
		Kind: KindArtifactSource, Rank: 3, create: document[ArtifactSource], Permission: "artifact_sources.write",
		Places:           places("platform/artifact-sources/{name}.yaml", "tenants/{tenant}/artifact-sources/{name}.yaml"),
		InsteadOfSuspend: "delete the file, or deny its host by policy",
	},
	{
		Kind: KindAttachment, Rank: 8, create: document[Attachment], Removal: RemovalEnds,
		Places: places("platform/shared-runtimes/{parent}/attachments/{name}.yaml",
			"tenants/{tenant}/shared-runtimes/{parent}/attachments/{name}.yaml"),
		Status: places("platform/shared-runtimes/{parent}/attachments/{name}.yaml",
			"tenants/{tenant}/shared-runtimes/{parent}/attachments/{name}.yaml"),
	},
	{
		Kind: KindContribution, Rank: 10, create: document[Contribution], Removal: RemovalDrops, Permission: "contributions.write",
		Places:           places("tenants/{tenant}/projects/{project}/contributions/{name}.yaml"),
		Status:           places("tenants/{tenant}/projects/{project}/contributions/{name}.yaml"),
		InsteadOfSuspend: "delete the file to withdraw the nodes",
	},
	{
		Kind: KindEntitlement, Rank: 6, create: document[Entitlement], Permission: "apps.entitlement.write",
		Places: places("tenants/{tenant}/projects/{project}/entitlements/{name}.yaml"),
		Status: places("tenants/{tenant}/projects/{project}/entitlements/{name}.yaml"),
	},
	{
		Kind: KindHookRule, Rank: lastRank, create: document[HookRule], Permission: "hooks.write",
		Places: places("platform/hooks/{name}.yaml"),
		Status: places("platform/hooks/{name}.yaml"),
	},
	{
		Kind: KindInstance, Rank: 9, create: document[Instance], Removal: RemovalEnds, Unit: true,
		NoEffect: []NoEffect{{"spec.tenant_boundary_mode", "it neither gives nor refuses access"}},
		Places:   places("tenants/{tenant}/projects/{project}/instances/{name}.yaml"),
		Status:   places("tenants/{tenant}/projects/{project}/instances/{name}.yaml"),
	},
	{
		Kind: KindMemberOperation, Rank: lastRank, create: document[MemberOperation],
		Places: places("platform/shared-runtimes/{parent}/operations/{name}.yaml",
			"tenants/{tenant}/shared-runtimes/{parent}/operations/{name}.yaml",
			"tenants/{tenant}/projects/{project}/operations/{name}.yaml"),
		Status: places("platform/shared-runtimes/{parent}/operations/{name}.yaml",
			"tenants/{tenant}/shared-runtimes/{parent}/operations/{name}.yaml",
			"tenants/{tenant}/projects/{project}/operations/{name}.yaml"),
	},
	{
		Kind: KindNode, Rank: lastRank, create: document[Node], Removal: RemovalDrops, Permission: "nodes.write",
		Places:           places("platform/nodes/{node}.yaml"),
		Status:           places("nodes/{node}.yaml"),
		InsteadOfSuspend: "set spec.cordoned for no new members",
	},
	{
		Kind: KindPause, Rank: lastRank, create: document[Pause], Permission: "platform.pause",
		Places: places("platform/pause.yaml"),
	},
	{
		Kind: KindPolicy, Rank: lastRank, create: document[Policy], Removal: RemovalWidens, Permission: "policy.write",
		Places: places("platform/policy/{name}.yaml", "tenants/{tenant}/policy.yaml"),
	},
	{
		Kind: KindProject, Rank: 1, create: document[Project], Removal: RemovalEnds, Permission: "projects.write",
		Places: places("tenants/{tenant}/projects/{name}/project.yaml"),
	},
	{
		Kind: KindQueueMap, Rank: lastRank, create: document[QueueMap], Permission: "queues.write",
		Places:           places("platform/queues/{name}.yaml"),
		Status:           places("platform/queues/{name}.yaml"),
		InsteadOfSuspend: "delete the file",
	},
	{
		Kind: KindRateCard, Rank: lastRank, create: document[RateCard], Permission: "rates.write",
		Places:           places("platform/rates/{name}.yaml"),
		InsteadOfSuspend: "delete the file",
	},
	{
		Kind: KindRoleBinding, Rank: lastRank, create: document[RoleBinding], Permission: "roles.write",
		Places: places("platform/roles/{name}.yaml", "tenants/{tenant}/roles.yaml", "tenants/{tenant}/projects/{project}/roles.yaml"),
	},
	{
		Kind: KindServiceAccount, Rank: 5, create: document[ServiceAccount], Permission: "service_accounts.write",
		Places: places("tenants/{tenant}/service-accounts/{name}.yaml", "tenants/{tenant}/projects/{project}/service-accounts/{name}.yaml"),
	},
	{
		Kind: KindSharedRuntime, Rank: 7, create: document[SharedRuntime], Removal: RemovalEnds, Unit: true,
		Places: places("platform/shared-runtimes/{name}/runtime.yaml", "tenants/{tenant}/shared-runtimes/{name}/runtime.yaml"),
		Status: places("platform/shared-runtimes/{name}.yaml", "tenants/{tenant}/shared-runtimes/{name}.yaml"),
	},
	{
		Kind: KindSite, Rank: lastRank, create: document[Site], Permission: "sites.write",
		NoEffect:         []NoEffect{{"spec.contact", "Berth calls nobody"}},
		Places:           places("platform/sites/{name}.yaml"),
		InsteadOfSuspend: "delete the file",
	},
	{
		Kind: KindTenant, Rank: 0, create: document[Tenant], Removal: RemovalEnds, Permission: "tenants.write",
		Places: places("tenants/{name}/tenant.yaml"),
	},
}

// Info is the row of a kind; the zero value for an unknown kind.
func (k Kind) Info() *KindInfo {
	for i := range kinds {
		if kinds[i].Kind == k {
			return &kinds[i]
		}
	}
	return &KindInfo{}
}

// IsUnit reports whether Berth deploys the declared object of a document of kind k as one whole.
func (k Kind) IsUnit() bool { return k.Info().Unit }

// New makes an empty document of kind k; nil for an unknown kind.
func (k Kind) New() Document {
	if create := k.Info().create; create != nil {
		return create()
	}
	return nil
}

// GuardsDeletion reports whether deleting a document of kind k ends, drops or widens
// something. Such a deletion comes into force with its own merge or by an explicit
// command only.
func (k Kind) GuardsDeletion() bool { return k.Info().Removal != "" }

// Kinds lists all kinds, sorted.
func Kinds() []Kind {
	all := make([]Kind, len(kinds))
	for i := range kinds {
		all[i] = kinds[i].Kind
	}
	return all
}

// Plural is the kind as a command line lists documents of it: nodes, policies.
func (k Kind) Plural() string {
	name := strings.ToLower(string(k))
	if stem, ok := strings.CutSuffix(name, "y"); ok {
		return stem + "ies"
	}
	return name + "s"
}

// ParseKind is the kind that a user writes as a word: singular or plural, in any
// case, with or without dashes, such as Instance, nodes or shared-runtimes.
func ParseKind(word string) (Kind, bool) {
	word = strings.ToLower(strings.ReplaceAll(word, "-", ""))
	all := Kinds()
	i := slices.IndexFunc(all, func(k Kind) bool { return word == strings.ToLower(string(k)) || word == k.Plural() })
	if i < 0 {
		return "", false
	}
	return all[i], true
}
