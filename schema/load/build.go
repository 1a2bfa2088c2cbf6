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
	projects := map[string][]*document{}
	some := false
	for _, doc := range s.docs {
		if s.out(doc) {
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
			projects[key.Name] = append(projects[key.Name], doc)
		default:
			switch {
			case key.Project != "":
				projects[key.Project] = append(projects[key.Project], doc)
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
		t = nil
	}
	for name, docs := range projects {
		t.Projects[name] = l.project(projectKey{s.tenant, name}, docs)
	}
	if len(s.estates) >= mostVerdicts {
		clear(s.estates)
	}
	s.estates[print] = t
	return t
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
