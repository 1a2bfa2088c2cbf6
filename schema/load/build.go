package load

import (
	"strings"

	"berth/schema"
)

// What of a part comes into Desired.

func emptyPlatform() *schema.Platform {
	return &schema.Platform{
		Apps: map[string]*schema.App{}, Versions: map[string]map[string]*schema.AppVersion{},
		Nodes: map[string]*schema.Node{}, Policies: map[string]*schema.Policy{}, Roles: map[string]*schema.RoleBinding{},
		Sites: map[string]*schema.Site{}, ArtifactSources: map[string]*schema.ArtifactSource{},
		SharedRuntimes: map[string]*schema.SharedRuntimeEstate{},
		Queues:         map[string]*schema.QueueMap{}, Hooks: map[string]*schema.HookRule{},
	}
}

// at is m[k], made if it is not there.
func at[V any](m map[string]V, k string, blank func() V) V {
	v, ok := m[k]
	if !ok {
		v = blank()
		m[k] = v
	}
	return v
}

// outPrint is a fingerprint of the files of a part that are out.
func (p *part) outPrint(out map[string]bool) string {
	var b strings.Builder
	for _, doc := range p.docs {
		if out[doc.file.Path] {
			b.WriteString(doc.file.Path)
			b.WriteByte(0)
		}
	}
	return b.String()
}

// buildPlatform is the platform of the documents not in out. The same
// documents give the same value.
func (p *part) buildPlatform(out map[string]bool) *schema.Platform {
	print := p.outPrint(out)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.platform != nil && p.out == print {
		return p.platform
	}
	b := emptyPlatform()
	for _, doc := range p.docs {
		if out[doc.file.Path] {
			continue
		}
		switch d := doc.spec.(type) {
		case *schema.App:
			b.Apps[d.Key.Name] = d
		case *schema.AppVersion:
			at(b.Versions, d.Key.Parent, newMap[*schema.AppVersion])[d.Key.Name] = d
		case *schema.Node:
			b.Nodes[d.Key.Name] = d
		case *schema.Policy:
			b.Policies[d.Key.Name] = d
		case *schema.RoleBinding:
			b.Roles[d.Key.Name] = d
		case *schema.Site:
			b.Sites[d.Key.Name] = d
		case *schema.ArtifactSource:
			b.ArtifactSources[d.Key.Name] = d
		case *schema.QueueMap:
			b.Queues[d.Key.Name] = d
		case *schema.HookRule:
			b.Hooks[d.Key.Name] = d
		case *schema.Pause:
			b.Pause = d
		default:
			addShared(b.SharedRuntimes, doc.spec)
		}
	}
	p.platform, p.out = b, print
	return b
}

func newMap[V any]() map[string]V { return map[string]V{} }

// addShared adds what stands in a shared runtime's directory.
func addShared(to map[string]*schema.SharedRuntimeEstate, doc declared) {
	name := doc.Head().Key.Parent
	if r, ok := doc.(*schema.SharedRuntime); ok {
		name = r.Key.Name
	}
	s := at(to, name, func() *schema.SharedRuntimeEstate {
		return &schema.SharedRuntimeEstate{Name: name, Attachments: map[string]*schema.Attachment{}, Operations: map[string]*schema.MemberOperation{}}
	})
	switch d := doc.(type) {
	case *schema.SharedRuntime:
		s.Runtime = d
	case *schema.Attachment:
		s.Attachments[d.Key.Name] = d
	case *schema.MemberOperation:
		s.Operations[d.Key.Name] = d
	}
}

// buildTenant is the tenant of the documents not in out, or nil if there is none.
func (p *part) buildTenant(out map[string]bool) *schema.TenantEstate {
	print := p.outPrint(out)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.estate != nil && p.out == print {
		return p.estate
	}
	t := &schema.TenantEstate{
		Name: p.tenant, Projects: map[string]*schema.ProjectEstate{}, ServiceAccounts: map[string]*schema.ServiceAccount{},
		ArtifactSources: map[string]*schema.ArtifactSource{}, SharedRuntimes: map[string]*schema.SharedRuntimeEstate{},
	}
	some := false
	for _, doc := range p.docs {
		if out[doc.file.Path] {
			continue
		}
		some = true
		key := doc.key
		switch d := doc.spec.(type) {
		case *schema.Tenant:
			t.Tenant = d
		case *schema.Policy:
			t.Policy = d
		case *schema.Project:
			project(t, key.Name).Project = d
		default:
			switch {
			case key.Project != "":
				addToProject(project(t, key.Project), d)
			case key.Kind == schema.KindRoleBinding:
				t.Roles = doc.spec.(*schema.RoleBinding)
			case key.Kind == schema.KindServiceAccount:
				t.ServiceAccounts[key.Name] = doc.spec.(*schema.ServiceAccount)
			case key.Kind == schema.KindArtifactSource:
				t.ArtifactSources[key.Name] = doc.spec.(*schema.ArtifactSource)
			default:
				addShared(t.SharedRuntimes, d)
			}
		}
	}
	if !some {
		return nil
	}
	p.estate, p.out = t, print
	return t
}

func project(t *schema.TenantEstate, name string) *schema.ProjectEstate {
	return at(t.Projects, name, func() *schema.ProjectEstate {
		return &schema.ProjectEstate{
			Name: name, Entitlements: map[string]*schema.Entitlement{}, Instances: map[string]*schema.Instance{},
			ServiceAccounts: map[string]*schema.ServiceAccount{}, Artifacts: map[string]*schema.Artifact{},
			Contributions: map[string]*schema.Contribution{}, Operations: map[string]*schema.MemberOperation{},
		}
	})
}

func addToProject(p *schema.ProjectEstate, doc declared) {
	switch d := doc.(type) {
	case *schema.RoleBinding:
		p.Roles = d
	case *schema.Entitlement:
		p.Entitlements[d.Key.Name] = d
	case *schema.Instance:
		p.Instances[d.Key.Name] = d
	case *schema.ServiceAccount:
		p.ServiceAccounts[d.Key.Name] = d
	case *schema.Artifact:
		p.Artifacts[d.Key.Name] = d
	case *schema.Contribution:
		p.Contributions[d.Key.Name] = d
	case *schema.MemberOperation:
		p.Operations[d.Key.Name] = d
	}
}
