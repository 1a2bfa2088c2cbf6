package schema

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Position is a place in a file. Line and Column count from 1; 0 is unknown.
type Position struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
}

// Place is the file and the line for people; the file alone where no line says it.
func (p Position) Place() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

// Warning returns a warning about the field of a document at a path.
func (p Position) Warning(path, code, format string, args ...any) Diagnostic {
	return p.Finding(SeverityWarning, path, code, format, args...)
}

// Finding returns a finding about the field of a document at a path, with which its message begins.
func (p Position) Finding(severity Severity, path, code, format string, args ...any) Diagnostic {
	return Diagnostic{Severity: severity, Code: code, File: p.File, Line: p.Line, Column: p.Column, Path: path,
		Message: path + ": " + fmt.Sprintf(format, args...)}
}

// finding returns a finding about the field of the document at a path.
func (h *Header) finding(severity Severity, code, path, format string, args ...any) Diagnostic {
	at := h.At(path)
	return Diagnostic{Severity: severity, Code: code, File: at.File, Line: at.Line, Column: at.Column, Path: path,
		Message: fmt.Sprintf(format, args...)}
}

// FieldPos is where one field of a document stands. Path is dotted with list
// indices, as in "spec.roles.worker.count" or "spec.members[2].login".
type FieldPos struct {
	Path   string
	Line   uint16
	Column uint16
}

// Header is what every document carries.
type Header struct {
	Key     Key
	UID     string            // keeps the identity across a move; optional
	Labels  map[string]string // free for people; Berth reads those of nodes where a role names them (InstanceRole.NodeLabels)
	Suspend bool              // true: Berth leaves what this declares alone

	File   string     // path in the estate
	Blob   string     // Git blob id, hex: the content's identity
	Fields []FieldPos // sorted by Path; the reader interns the paths
}

// SameDocument says whether a and b are one text at one path. It does not compare the pointers, as two
// readings of a file at the same time make two.
func SameDocument[D interface {
	comparable
	Document
}](a, b D) bool {
	var none D
	if a == none || b == none || a == b {
		return a == b
	}
	return a.Head().File == b.Head().File && a.Head().Blob == b.Head().Blob
}

// SameDocuments is SameDocument for all documents of two maps.
func SameDocuments[D interface {
	comparable
	Document
}](a, b map[string]D) bool {
	return maps.EqualFunc(a, b, SameDocument[D])
}

// ID is the document's identity in the API and in events: its uid, else its name.
func (h *Header) ID() string { return ID(h.UID, h.Key) }

// ID is Header.ID of a document with a uid ("": none) and a key.
func ID(uid string, key Key) string { return cmp.Or(uid, key.Name) }

// At is the position of the field at path, of its nearest ancestor if path is
// not there, and else of the document's first line.
func (h *Header) At(path string) Position {
	for {
		i, ok := slices.BinarySearchFunc(h.Fields, path, func(f FieldPos, p string) int { return strings.Compare(f.Path, p) })
		if ok {
			return Position{h.File, int(h.Fields[i].Line), int(h.Fields[i].Column)}
		}
		cut := strings.LastIndexAny(path, ".[")
		if cut < 0 {
			return Position{h.File, 1, 1}
		}
		path = path[:cut]
	}
}

// Warning returns a warning about the field at path.
func (h *Header) Warning(path, code, format string, args ...any) Diagnostic {
	return h.At(path).Warning(path, code, format, args...)
}

// Has reports whether the document has the field at path.
func (h *Header) Has(path string) bool {
	_, ok := slices.BinarySearchFunc(h.Fields, path, func(f FieldPos, p string) int { return strings.Compare(f.Path, p) })
	return ok
}

// Head is h: every document has one, whatever its kind.
func (h *Header) Head() *Header { return h }

// Tenant is an organisation (requirement A14: org). Its projects stand below it.
type Tenant struct {
	Header
	Spec TenantSpec
}

// TenantSpec is the spec of a Tenant.
type TenantSpec struct {
	DisplayName string            `json:"display_name"`
	Description string            `json:"description,omitempty"`
	Repository  *TenantRepository `json:"repository,omitempty"` // nil: the estate's own
}

// TenantRepository is where everything of a tenant stands but its tenant.yaml
// (requirement F8): that repository's root is the tenant's directory.
type TenantRepository struct {
	URL    string `json:"url"`
	Branch string `json:"branch"`
}

// Project owns instances and entitlements.
type Project struct {
	Header
	Spec ProjectSpec
}

// ProjectSpec is the spec of a Project.
type ProjectSpec struct {
	DisplayName string `json:"display_name"`
	Description string `json:"description,omitempty"`
}

// CatalogStatus says what may be done with an App or AppVersion (ACP):
// active; deprecated: existing instances go on, new ones get a warning;
// disabled: no new instances.
type CatalogStatus string

// The states of a catalog entry.
const (
	StatusActive     CatalogStatus = "active"
	StatusDeprecated CatalogStatus = "deprecated"
	StatusDisabled   CatalogStatus = "disabled"
)

// App is a catalog entry, the platform's or a tenant's own (Key.Tenant); its name is the slug.
type App struct {
	Header
	Spec AppSpec
}

// categoryScheduler is the category of the apps that are schedulers. Their entries and instances need the
// permissions scheduler.* beside apps.* (document SPA).
const categoryScheduler = "scheduler"

// IsScheduler reports whether an app is a scheduler; a nil one is not.
func (a *App) IsScheduler() bool { return a != nil && a.Spec.Category == categoryScheduler }

// AppSpec is the spec of an App (ACP app_catalog).
type AppSpec struct {
	DisplayName string        `json:"display_name"`
	Category    string        `json:"category"`
	Publisher   string        `json:"publisher"`
	Description string        `json:"description,omitempty"`
	Status      CatalogStatus `json:"status"`
	Runbook     string        `json:"runbook,omitempty"` // page of the app's support: a path or a link
	Supports    AppSupports   `json:"supports,omitzero"`
	Requires    AppRequires   `json:"requires,omitzero"`
}

// AppVersion is one version of an App. Key.Parent is the app.
type AppVersion struct {
	Header
	Spec AppVersionSpec
	// Releases are those that the runtime of the version knows. They are the runtime's,
	// not the document's.
	Releases Releases `json:"-"`
}

// Release returns the release of the version, or nil if its runtime knows none.
func (v *AppVersion) Release() *Release { return v.Releases.Of(v.Spec.Version) }

// AppVersionSpec is the spec of an AppVersion (ACP app_versions).
type AppVersionSpec struct {
	Version        string        `json:"version"` // as the app's publisher writes it, such as "22.05.8"
	RuntimeBackend string        `json:"runtime_backend"`
	Status         CatalogStatus `json:"status"`
	Manifest       Manifest      `json:"manifest"`
}

// Manifest lists the parts of an instance of a version.
type Manifest struct {
	Roles      map[string]ManifestRole `json:"roles"`
	Parameters json.RawMessage         `json:"parameters,omitempty"` // defaults for an instance's config; canonical JSON object
	// checked at their source; a version with other bytes takes no new instances
	Artifacts   map[string]ManifestArtifact `json:"artifacts,omitempty"`
	UpgradeFrom []string                    `json:"upgrade_from,omitempty"`
}

// ManifestRole is one logical role of an app's members (requirement B10: a
// role states the purpose of a member, never its host).
type ManifestRole struct {
	NodeRole     string `json:"node_role"`               // nodes offer roles; a member goes to a node that offers this one
	ControlPlane bool   `json:"control_plane,omitempty"` // exactly one role of a manifest; always one member
	Shareable    bool   `json:"shareable,omitempty"`     // members of several instances may share a node
	GPUs         bool   `json:"gpus,omitempty"`          // members may ask for GPUs
	Min          int    `json:"min"`
	Max          int    `json:"max"`
}

// Node is a host of the lab. Only the platform declares nodes.
type Node struct {
	Header
	Spec NodeSpec
}

// NodeSpec is the spec of a Node.
type NodeSpec struct {
	Address string `json:"address"` // IP address or name Berth and the other nodes reach it at
	SSHPort int    `json:"ssh_port"`
	// pinned SSH host key, "ssh-ed25519 AAAA…"; else berth.yaml's known_hosts must hold it
	HostKey  string            `json:"host_key,omitempty"`
	Region   string            `json:"region"`
	SKU      string            `json:"sku"`
	Roles    []string          `json:"roles"` // roles of members that the node can hold, such as controller or worker
	Capacity Capacity          `json:"capacity"`
	Topology map[string]string `json:"topology,omitempty"`     // such as rack, switch
	Reserved string            `json:"reserved_for,omitempty"` // tenant or tenant.project that alone may use it
	Cordoned bool              `json:"cordoned,omitempty"`     // nothing new is placed on it
}

// Capacity are the resources that a node offers.
type Capacity struct {
	CPUs int `json:"cpus"`
	Shape
	MemoryMiB int   `json:"memory_mib"`
	DiskGiB   int   `json:"disk_gib,omitempty"` // 0: not known
	GPUs      []GPU `json:"gpus,omitempty"`
}

// Shape is the arrangement of a node's CPUs. The zero value is unknown, or not declared.
type Shape struct {
	Sockets        int `json:"sockets,omitempty"`
	CoresPerSocket int `json:"cores_per_socket,omitempty"`
	ThreadsPerCore int `json:"threads_per_core,omitempty"`
}

// Cores returns the number of cores.
func (s Shape) Cores() int { return s.Sockets * s.CoresPerSocket }

// Threads returns the number of threads of all cores.
func (s Shape) Threads() int { return s.Cores() * s.ThreadsPerCore }

// GPU is one kind of GPU on a node.
type GPU struct {
	Type    string `json:"type"`
	Count   int    `json:"count"`
	Devices string `json:"devices"` // device files, with one bracketed range: /dev/nvidia[0-3]
}

// Policy narrows what may be declared. Key.Tenant is empty for scope global.
type Policy struct {
	Header
	Spec PolicySpec
}

// PolicySpec is the spec of a Policy: the seven keys (requirement A3), quotas and sites (E13), what
// nothing below may lift, who must agree to changes below it, and what becomes
// of instances that run already and no longer comply.
type PolicySpec struct {
	Overlay
	Quotas
	// AllowedSites are names of sites; it allows their regions. nil: all.
	AllowedSites []string `json:"allowed_sites,omitzero"`

	HardDeny        HardDeny `json:"hard_deny,omitzero"`
	RequireApproval bool     `json:"require_approval,omitempty"` // changes below need the approval of a second user with the permission
	// RequireOnboarding refuses new instances and shared runtimes below of an app that lacks a point of onboarding.
	RequireOnboarding bool         `json:"require_onboarding,omitempty"`
	Noncompliant      Noncompliant `json:"noncompliant,omitzero"`
}

// NoncompliantAction is what becomes of an instance that runs already and that
// a policy no longer allows.
type NoncompliantAction string

// Hold, the default, keeps the instance and denies changes of it that do not
// comply. Stop stops it when its grace is over, as desired_state: stopped does.
const (
	NoncompliantHold NoncompliantAction = "hold"
	NoncompliantStop NoncompliantAction = "stop"
)

// Noncompliant says what becomes of instances where this policy holds that exist
// and are no longer allowed, by whichever layer. Of several the strictest holds:
// stop before hold, the earlier day before the later.
type Noncompliant struct {
	Action NoncompliantAction `json:"action,omitempty"`
	// "2006-01-02", UTC: stopped when that day begins; needed for stop, so that nothing is stopped silently
	GraceUntil string `json:"grace_until,omitempty"`
}

// HardDeny is what no overlay below can allow again. The
// platform denies to everybody, a tenant to itself.
type HardDeny struct {
	Apps []string `json:"apps,omitempty"`
}

// Overlay is the seven policy keys. A nil field says nothing; it never widens.
type Overlay struct {
	AllowedRegions            []string `json:"allowed_regions,omitzero"`
	AllowedSKUs               []string `json:"allowed_skus,omitzero"`
	MaxInstancesPerProject    *int     `json:"max_instances_per_project,omitempty"`
	MaxGPUsPerInstance        *int     `json:"max_gpus_per_instance,omitempty"`
	ArtifactSourceAllowlist   []string `json:"artifact_source_allowlist,omitzero"`
	AllowedOperatingModes     []string `json:"allowed_operating_modes,omitzero"`
	AllowedControlPlaneScopes []string `json:"allowed_control_plane_scopes,omitzero"`
}

// Quotas are the keys of a Policy that bound a project, or a tenant with all its projects. A nil field says
// nothing; it never widens. An entitlement has none: it is of one app.
type Quotas struct {
	MaxInstancesPerTenant *int `json:"max_instances_per_tenant,omitempty"`
	MaxGPUsPerProject     *int `json:"max_gpus_per_project,omitempty"`
	MaxGPUsPerTenant      *int `json:"max_gpus_per_tenant,omitempty"`
	MaxNodesPerProject    *int `json:"max_nodes_per_project,omitempty"`
	MaxNodesPerTenant     *int `json:"max_nodes_per_tenant,omitempty"`
	// MaxWaitingOperationsPerProject and MaxWaitingOperationsPerTenant bound the operations that are not done.
	MaxWaitingOperationsPerProject *int `json:"max_waiting_operations_per_project,omitempty"`
	MaxWaitingOperationsPerTenant  *int `json:"max_waiting_operations_per_tenant,omitempty"`
	// MaxMonthlyGPUHoursPerProject and MaxMonthlyGPUHoursPerTenant bound the use of a calendar month (UTC). A change that adds
	// GPUs is held while they are used up.
	MaxMonthlyGPUHoursPerProject *int `json:"max_monthly_gpu_hours_per_project,omitempty"`
	MaxMonthlyGPUHoursPerTenant  *int `json:"max_monthly_gpu_hours_per_tenant,omitempty"`
	// MaxHourlyChangesPerProject and MaxHourlyChangesPerTenant bound the changes of units that begin in an hour. The others wait.
	MaxHourlyChangesPerProject *int `json:"max_hourly_changes_per_project,omitempty"`
	MaxHourlyChangesPerTenant  *int `json:"max_hourly_changes_per_tenant,omitempty"`
	// MaxAPIRequestsPerMinutePerProject and MaxAPIRequestsPerMinutePerTenant bound the requests of service accounts.
	MaxAPIRequestsPerMinutePerProject *int `json:"max_api_requests_per_minute_per_project,omitempty"`
	MaxAPIRequestsPerMinutePerTenant  *int `json:"max_api_requests_per_minute_per_tenant,omitempty"`
}

// Entitlement allows a project to use an app; its name is the app's slug.
type Entitlement struct {
	Header
	Spec EntitlementSpec
}

// EntitlementSpec is the spec of an Entitlement (ACP project_app_entitlements).
type EntitlementSpec struct {
	Enabled         bool    `json:"enabled"`
	PolicyOverrides Overlay `json:"policy_overrides,omitzero"`
}

// RoleBinding gives people roles where it stands: platform, tenant or project.
type RoleBinding struct {
	Header
	Spec RoleBindingSpec
}

// RoleBindingSpec is the spec of a RoleBinding.
type RoleBindingSpec struct {
	Members []RoleMember `json:"members"`
}

// RoleMember is one person or service account of a RoleBinding: Login or
// ServiceAccount names it.
type RoleMember struct {
	Login          string `json:"login,omitempty"`           // at the forge
	ServiceAccount string `json:"service_account,omitempty"` // of the same tenant or project; its role is service_account
	Role           string `json:"role"`                      // one of the nine roles of ACP
	// of the login: SSH public keys ("ssh-ed25519 AAAA…") and armored OpenPGP ones, that sign commits
	SigningKeys []string  `json:"signing_keys,omitempty"`
	UnixUser    *UnixUser `json:"unix_user,omitempty"`
}

// UnixUser is a user's account on the hosts: one name and one uid everywhere.
type UnixUser struct {
	Name string `json:"name"`
	UID  int    `json:"uid"`
}

// DesiredState is what an instance's owner wants it to do.
type DesiredState string

// The desired states. Removing the document deletes the instance (requirement E1).
const (
	DesiredRunning DesiredState = "running"
	DesiredStopped DesiredState = "stopped"
)

// Instance is one running app of a project.
type Instance struct {
	Header
	Spec InstanceSpec
}

// InstanceSpec is the spec of an Instance (ACP app_instances, declared part).
// The reader fills the defaults.
type InstanceSpec struct {
	App          string       `json:"app"`
	Version      string       `json:"version"` // name of the AppVersion document
	DisplayName  string       `json:"display_name"`
	DesiredState DesiredState `json:"desired_state"`
	ProductMode
	Regions []string                `json:"regions,omitempty"` // where members may be; empty: wherever policy allows
	Roles   map[string]InstanceRole `json:"roles"`
	Config  json.RawMessage         `json:"config,omitempty"` // the runtime's; canonical JSON object, checked by its definition
	OnJobs  *OnJobs                 `json:"on_jobs,omitempty"`

	// SharedRuntime names the shared runtime that carries an instance whose
	// control_plane_scope is tenant (one of its tenant's) or platform. The instance is the
	// project's view of it, and accepts the terms of the project's Attachment.
	SharedRuntime string `json:"shared_runtime,omitempty"`
	// SubmissionLimits are narrower than those of the Attachment, if the project wants that.
	SubmissionLimits *SubmissionLimits `json:"submission_limits,omitempty"`

	// a note for people, of whom it is for; the status says who brought the document
	RequestedBy string `json:"requested_by,omitempty"`
	// name of a ServiceAccount of the same project, whose own document gives its permissions
	OperatorServiceAccount string `json:"operator_service_account,omitempty"`
	// true: the document is neither removed nor made into another instance
	DeletionProtection bool `json:"deletion_protection,omitempty"`
}

// ProductMode is how an instance is offered: with a control plane of its own, or on a shared runtime.
type ProductMode struct {
	OperatingMode      string `json:"operating_mode"`      // always what the scope says
	ControlPlaneScope  string `json:"control_plane_scope"` // project: a control plane of its own; else whose shared runtime carries it
	TenantBoundaryMode string `json:"tenant_boundary_mode"`
}

// InstanceRole is how many members of a role an instance wants, and of what kind.
type InstanceRole struct {
	Count     int         `json:"count"`
	SKU       string      `json:"sku,omitempty"` // empty: any that policy allows
	GPUs      *GPURequest `json:"gpus,omitempty"`
	CPUs      int         `json:"cpus,omitempty"`       // least per member; 0: any
	MemoryMiB int         `json:"memory_mib,omitempty"` // least per member; 0: any
	DiskGiB   int         `json:"disk_gib,omitempty"`   // kept for each member; 0: none
	// NodeLabels are labels that the node of a member has in its metadata.
	NodeLabels map[string]string `json:"node_labels,omitempty"`
	// MaxUnavailable bounds the members that a change may drain or move at once.
	MaxUnavailable MaxUnavailable `json:"max_unavailable,omitzero"`
	OnNodeLost     *OnNodeLost    `json:"on_node_lost,omitempty"` // nil: wait
	// MissingGraceSeconds is how long the host of a worker has nothing of it before Berth makes it again; nil: DefaultMissingGrace.
	MissingGraceSeconds *int `json:"missing_grace_seconds,omitempty"`
}

// DefaultMissingGrace is the grace of a role that names none: a host that has booted mounts its file systems within it.
const DefaultMissingGrace = time.Minute

// OnNodeLost decides about a worker whose node is lost: it waits for the node, or gets another one.
type OnNodeLost struct {
	Wait                bool `json:"wait,omitempty"`
	ReplaceAfterSeconds int  `json:"replace_after_seconds,omitempty"` // since the node is lost; 0: it waits
}

// ReplaceAfter returns how long the node of a worker has to be lost before it gets another one; 0: it never does.
func (o *OnNodeLost) ReplaceAfter() time.Duration {
	if o == nil {
		return 0
	}
	return time.Duration(o.ReplaceAfterSeconds) * time.Second
}

// GPURequest is what each member of a role must offer.
type GPURequest struct {
	Type  string `json:"type,omitempty"` // empty: any
	Count int    `json:"count"`
}

// OnJobs is the drain rule for actions that would end jobs.
// Both nil-like values mean wait without end.
type OnJobs struct {
	Wait               bool `json:"wait,omitempty"`
	CancelAfterSeconds int  `json:"cancel_after_seconds,omitempty"`
}

// RepositoryPlace is what URLs of one repository have in common.
func RepositoryPlace(url string) string {
	return strings.ToLower(strings.TrimSuffix(strings.TrimSuffix(url, "/"), ".git"))
}
