package schema

import (
	"cmp"
	"fmt"
	"strings"
)

// APIVersion is the one apiVersion documents carry.
const APIVersion = "berth/v1"

// Kind is the kind of a document, spelt as in its `kind` field.
type Kind string

// The kinds Berth reads.
const (
	KindTenant      Kind = "Tenant"
	KindProject     Kind = "Project"
	KindApp         Kind = "App"
	KindAppVersion  Kind = "AppVersion"
	KindNode        Kind = "Node"
	KindPolicy      Kind = "Policy"
	KindEntitlement Kind = "Entitlement"
	KindRoleBinding Kind = "RoleBinding"
	KindInstance    Kind = "Instance"

	KindSite            Kind = "Site"
	KindArtifactSource  Kind = "ArtifactSource"
	KindArtifact        Kind = "Artifact"
	KindServiceAccount  Kind = "ServiceAccount"
	KindSharedRuntime   Kind = "SharedRuntime"
	KindAttachment      Kind = "Attachment"
	KindContribution    Kind = "Contribution"
	KindMemberOperation Kind = "MemberOperation"
	KindQueueMap        Kind = "QueueMap"
	KindHookRule        Kind = "HookRule"
	KindPause           Kind = "Pause"
)

// Kinds are all of them, sorted.
func Kinds() []Kind {
	return []Kind{
		KindApp, KindAppVersion, KindArtifact, KindArtifactSource, KindAttachment, KindContribution, KindEntitlement,
		KindHookRule, KindInstance, KindMemberOperation, KindNode, KindPause, KindPolicy, KindProject, KindQueueMap,
		KindRoleBinding, KindServiceAccount, KindSharedRuntime, KindSite, KindTenant,
	}
}

// GuardsDeletion says whether the deletion of a document of kind k ends, drops or
// widens something: a unit, data or hardware goes, or a limit is lifted. Such a
// deletion comes into force with its own merge or by an explicit command only.
func (k Kind) GuardsDeletion() bool {
	switch k {
	case KindTenant, KindProject, KindInstance, KindSharedRuntime, KindAttachment, KindContribution, KindNode, KindArtifact, KindPolicy:
		return true
	}
	return false
}

// Plural is the kind as a command line lists documents of it: nodes, policies.
func (k Kind) Plural() string {
	name := strings.ToLower(string(k))
	if stem, ok := strings.CutSuffix(name, "y"); ok {
		return stem + "ies"
	}
	return name + "s"
}

// ParseKind is the kind that people mean by a word: singular or plural, in any
// case, with or without dashes, such as Instance, nodes or shared-runtimes.
func ParseKind(word string) (Kind, bool) {
	word = strings.ToLower(strings.ReplaceAll(word, "-", ""))
	for _, k := range Kinds() {
		if word == strings.ToLower(string(k)) || word == k.Plural() {
			return k, true
		}
	}
	return "", false
}

// Key names one declared thing. Two documents with the same Key are the same
// thing. It is comparable and serves as map and queue key.
type Key struct {
	Kind    Kind   `json:"kind"`
	Tenant  string `json:"tenant,omitempty"`  // empty for platform documents
	Project string `json:"project,omitempty"` // empty for tenant documents
	Parent  string `json:"parent,omitempty"`  // the app of an AppVersion; the shared runtime of an Attachment or of an operation on it
	Name    string `json:"name"`
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

// IsZero says whether k names nothing.
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

// Path is where the document of k stands in an estate (DESIGN §2), or an error
// for a key that has no single place (platform policies may carry any name).
func (k Key) Path() (string, error) {
	owner := "platform"
	switch {
	case k.Project != "":
		owner = "tenants/" + k.Tenant + "/projects/" + k.Project
	case k.Tenant != "":
		owner = "tenants/" + k.Tenant
	}
	switch k.Kind {
	case KindTenant:
		return "tenants/" + k.Name + "/tenant.yaml", nil
	case KindProject:
		return "tenants/" + k.Tenant + "/projects/" + k.Name + "/project.yaml", nil
	case KindApp:
		return "platform/catalog/" + k.Name + "/app.yaml", nil
	case KindAppVersion:
		return "platform/catalog/" + k.Parent + "/" + k.Name + ".yaml", nil
	case KindNode:
		return "platform/nodes/" + k.Name + ".yaml", nil
	case KindPolicy:
		if k.Tenant == "" {
			return "platform/policy/" + k.Name + ".yaml", nil
		}
		return owner + "/policy.yaml", nil
	case KindEntitlement:
		return owner + "/entitlements/" + k.Name + ".yaml", nil
	case KindRoleBinding:
		if k.Tenant == "" {
			return "platform/roles/" + k.Name + ".yaml", nil
		}
		return owner + "/roles.yaml", nil
	case KindInstance:
		return owner + "/instances/" + k.Name + ".yaml", nil
	case KindSite:
		return "platform/sites/" + k.Name + ".yaml", nil
	case KindQueueMap:
		return "platform/queues/" + k.Name + ".yaml", nil
	case KindHookRule:
		return "platform/hooks/" + k.Name + ".yaml", nil
	case KindPause:
		return "platform/pause.yaml", nil
	case KindArtifactSource:
		return owner + "/artifact-sources/" + k.Name + ".yaml", nil
	case KindServiceAccount:
		return owner + "/service-accounts/" + k.Name + ".yaml", nil
	case KindSharedRuntime:
		return owner + "/shared-runtimes/" + k.Name + "/runtime.yaml", nil
	case KindAttachment:
		return owner + "/shared-runtimes/" + k.Parent + "/attachments/" + k.Name + ".yaml", nil
	case KindMemberOperation:
		if k.Parent != "" {
			owner += "/shared-runtimes/" + k.Parent
		}
		return owner + "/operations/" + k.Name + ".yaml", nil
	case KindArtifact:
		return owner + "/artifacts/" + k.Name + ".yaml", nil
	case KindContribution:
		return owner + "/contributions/" + k.Name + ".yaml", nil
	}
	return "", fmt.Errorf("kind %q has no place in an estate", k.Kind)
}
