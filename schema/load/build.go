package load

import (
	"slices"
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
func (s *standing) outPrint() string {
	return s.verdict.outPrint + "\x00" + strings.Join(sortedNames(s.lost), "\x00")
}

// buildPlatform is the platform of the documents not out. The same documents
// give the same value.
func (s *standing) buildPlatform() *schema.Platform {
	print := s.outPrint()
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.platforms[print]; ok {
		return p
	}
	b := emptyPlatform()
	for _, doc := range s.docs {
		if s.out(doc) {
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
	if len(s.platforms) >= mostVerdicts {
		clear(s.platforms)
	}
	s.platforms[print] = b
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

// buildTenant is the tenant of the documents not out, or nil if there is none.
// The same documents give the same value, of each project too.
func (s *standing) buildTenant(l *Loader) *schema.TenantEstate {
	print := s.outPrint()
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.estates[print]; ok {
		return t
	}
	t := &schema.TenantEstate{
		Name: s.tenant, Projects: map[string]*schema.ProjectEstate{}, ServiceAccounts: map[string]*schema.ServiceAccount{},
		ArtifactSources: map[string]*schema.ArtifactSource{}, SharedRuntimes: map[string]*schema.SharedRuntimeEstate{},
	}
	some := false
	for _, g := range s.groups {
		docs := g.docs
		if !s.verdict.clean || len(s.lost) > 0 {
			docs = slices.DeleteFunc(slices.Clone(docs), s.out)
		}
		some = some || len(docs) > 0
		switch {
		case len(docs) == 0:
		case g.name != "":
			t.Projects[g.name] = l.project(projectKey{s.tenant, g.name}, docs)
		default:
			addToTenant(t, docs)
		}
	}
	if !some {
		t = nil
	}
	if len(s.estates) >= mostVerdicts {
		clear(s.estates)
	}
	s.estates[print] = t
	return t
}

// addToTenant adds what is of no project.
func addToTenant(t *schema.TenantEstate, docs []*document) {
	for _, doc := range docs {
		switch d := doc.spec.(type) {
		case *schema.Tenant:
			t.Tenant = d
		case *schema.Policy:
			t.Policy = d
		case *schema.RoleBinding:
			t.Roles = d
		case *schema.ServiceAccount:
			t.ServiceAccounts[d.Key.Name] = d
		case *schema.ArtifactSource:
			t.ArtifactSources[d.Key.Name] = d
		default:
			addShared(t.SharedRuntimes, d)
		}
	}
}

type projectKey struct{ tenant, name string }

// project is a project that was built, and of what.
type project struct {
	docs   []*document
	estate *schema.ProjectEstate
}

// project builds the project of these documents, or finds it built.
func (l *Loader) project(key projectKey, docs []*document) *schema.ProjectEstate {
	built, _ := l.projects.get(key)
	for _, b := range built {
		if slices.Equal(b.docs, docs) {
			return b.estate
		}
	}
	p := &schema.ProjectEstate{
		Name: key.name, Entitlements: map[string]*schema.Entitlement{}, Instances: map[string]*schema.Instance{},
		ServiceAccounts: map[string]*schema.ServiceAccount{}, Artifacts: map[string]*schema.Artifact{},
		Contributions: map[string]*schema.Contribution{}, Operations: map[string]*schema.MemberOperation{},
	}
	for _, doc := range docs {
		addToProject(p, doc.spec)
	}
	l.projects.add(key, append([]project{{docs, p}}, built[:min(len(built), mostVerdicts-1)]...))
	return p
}

func addToProject(p *schema.ProjectEstate, doc declared) {
	switch d := doc.(type) {
	case *schema.Project:
		p.Project = d
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
