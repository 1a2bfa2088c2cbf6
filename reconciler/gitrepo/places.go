package gitrepo

import (
	"fmt"
	"strings"

	"berth/reconciler"
	"berth/schema"
)

// statusPlace is where the statuses of one kind stand on berth/status.
type statusPlace struct {
	kind    schema.Kind
	pattern string // {tenant}, {project}, {parent} and {name} stand for the parts of a key
}

// statusPlaces are all of them (DESIGN §3). Where they differ from where the
// estate has the document, it is that a status is one file.
func statusPlaces() []statusPlace {
	return []statusPlace{
		{schema.KindInstance, "tenants/{tenant}/projects/{project}/instances/{name}.yaml"},
		{schema.KindArtifact, "tenants/{tenant}/projects/{project}/artifacts/{name}.yaml"},
		{schema.KindMemberOperation, "tenants/{tenant}/projects/{project}/operations/{name}.yaml"},
		{schema.KindContribution, "tenants/{tenant}/projects/{project}/contributions/{name}.yaml"},
		{schema.KindEntitlement, "tenants/{tenant}/projects/{project}/entitlements/{name}.yaml"},
		{schema.KindSharedRuntime, "tenants/{tenant}/shared-runtimes/{name}.yaml"},
		{schema.KindAttachment, "tenants/{tenant}/shared-runtimes/{parent}/attachments/{name}.yaml"},
		{schema.KindMemberOperation, "tenants/{tenant}/shared-runtimes/{parent}/operations/{name}.yaml"},
		{schema.KindSharedRuntime, "platform/shared-runtimes/{name}.yaml"},
		{schema.KindAttachment, "platform/shared-runtimes/{parent}/attachments/{name}.yaml"},
		{schema.KindMemberOperation, "platform/shared-runtimes/{parent}/operations/{name}.yaml"},
		{schema.KindAppVersion, "platform/catalog/{parent}/{name}.yaml"},
		{schema.KindNode, "nodes/{name}.yaml"},
	}
}

// statusDirs are the directories all of them stand in.
func statusDirs() []string { return []string{"nodes", "platform", tenantsDir} }

// statusPath is where the status of a unit or thing stands.
func statusPath(key schema.Key) (string, error) {
	for _, p := range statusPlaces() {
		if p.kind != key.Kind {
			continue
		}
		path := strings.NewReplacer("{tenant}", key.Tenant, "{project}", key.Project, "{parent}", key.Parent, "{name}", key.Name).Replace(p.pattern)
		if back, ok := p.key(path); ok && back == key {
			return path, nil
		}
	}
	return "", fmt.Errorf("%q has no place on %s", key.String(), reconciler.BranchStatus)
}

// statusKey is the unit or thing whose status stands at path.
func statusKey(path string) (schema.Key, bool) {
	for _, p := range statusPlaces() {
		if key, ok := p.key(path); ok {
			return key, true
		}
	}
	return schema.Key{}, false
}

// key is what stands at path, if this is its place.
func (p statusPlace) key(path string) (schema.Key, bool) {
	if strings.Count(p.pattern, "/") != strings.Count(path, "/") {
		return schema.Key{}, false
	}
	key := schema.Key{Kind: p.kind}
	for want := range strings.SplitSeq(p.pattern, "/") {
		var got string
		got, path, _ = strings.Cut(path, "/")
		if part, suffix, ok := strings.Cut(want, "}"); ok {
			var cut bool
			if got, cut = strings.CutSuffix(got, suffix); !cut || !identifier(got) {
				return schema.Key{}, false
			}
			switch part[1:] {
			case "tenant":
				key.Tenant = got
			case "project":
				key.Project = got
			case "parent":
				key.Parent = got
			case "name":
				key.Name = got
			}
		} else if got != want {
			return schema.Key{}, false
		}
	}
	return key, true
}
