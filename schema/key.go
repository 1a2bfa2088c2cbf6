package schema

import (
	"cmp"
	"strings"
)

// APIVersion is the one apiVersion documents carry.
const APIVersion = "berth/v1"

// Key identifies a declared resource: two documents with the same Key declare the
// same resource. It is comparable and serves as map and queue key.
type Key struct {
	Kind    Kind   `json:"kind"`
	Tenant  string `json:"tenant,omitempty"`  // empty for platform documents
	Project string `json:"project,omitempty"` // empty for tenant documents
	// the app of an AppVersion; the tenant of an AppAdmission; the shared runtime of an Attachment or of an operation on it
	Parent string `json:"parent,omitempty"`
	Name   string `json:"name"`
}

// ProjectID is `<tenant>.<project>`, the project_id of the API, or "" for a
// key outside a project.
func (k Key) ProjectID() string {
	if k.Project == "" {
		return ""
	}
	return k.Tenant + "." + k.Project
}

// String is the short form people read: "Instance physics.lhc/train",
// "AppVersion batch/v1", "Node gpu-1".
func (k Key) String() string { return string(k.Kind) + " " + k.ResourceName() }

// ResourceName is what String says besides the kind: "physics.lhc/train",
// "physics/department/lhc", "gpu-1". It is the resource_name of API and events.
func (k Key) ResourceName() string {
	var b strings.Builder
	switch {
	case k.Project != "":
		b.WriteString(k.ProjectID())
		b.WriteByte('/')
	case k.Tenant != "":
		b.WriteString(k.Tenant)
		b.WriteByte('/')
	}
	if k.Parent != "" {
		b.WriteString(k.Parent)
		b.WriteByte('/')
	}
	b.WriteString(k.Name)
	return b.String()
}

// IsZero reports whether k is empty.
func (k Key) IsZero() bool { return k == Key{} }

// Compare orders keys by kind, tenant, project, parent and name.
func (k Key) Compare(o Key) int {
	return cmp.Or(
		cmp.Compare(k.Kind, o.Kind),
		cmp.Compare(k.Tenant, o.Tenant),
		cmp.Compare(k.Project, o.Project),
		cmp.Compare(k.Parent, o.Parent),
		cmp.Compare(k.Name, o.Name),
	)
}

// InstanceKey is the key of an instance.
func InstanceKey(tenant, project, name string) Key {
	return Key{Kind: KindInstance, Tenant: tenant, Project: project, Name: name}
}

// SharedRuntimeKey is the key of the shared runtime that a document of a tenant names: the platform's
// for the control plane scope platform, and the tenant's for tenant.
func SharedRuntimeKey(tenant, scope, name string) Key {
	if scope == "platform" {
		tenant = ""
	}
	return Key{Kind: KindSharedRuntime, Tenant: tenant, Name: name}
}
