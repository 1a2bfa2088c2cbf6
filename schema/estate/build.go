package estate

import (
	"slices"
	"strings"

	"berth/schema"
	"berth/schema/load"
)

// buildPlatform is the platform of the documents that are not out. The same
// documents give the same value.
func (s *standing) buildPlatform() *schema.Platform {
	return s.build(func() any {
		p := &schema.Platform{}
		for _, doc := range s.docs {
			if !s.out(doc) {
				p.Put(doc.Decl)
			}
		}
		return p
	}).(*schema.Platform)
}

// buildTenant is the tenant of the documents that are not out; nil if there are
// none. The same documents give the same value, of each project too.
func (s *standing) buildTenant() *schema.TenantEstate {
	return s.build(func() any {
		var t *schema.TenantEstate
		projects := map[string][]*load.Document{}
		for _, doc := range s.docs {
			if s.out(doc) {
				continue
			}
			if t == nil {
				t = &schema.TenantEstate{Name: s.tenant, Projects: map[string]*schema.ProjectEstate{}}
			}
			switch k := doc.Key; {
			case k.Kind == schema.KindProject:
				projects[k.Name] = append(projects[k.Name], doc)
			case k.Project != "":
				projects[k.Project] = append(projects[k.Project], doc)
			default:
				t.Put(doc.Decl)
			}
		}
		for name, docs := range projects {
			t.Projects[name] = s.uses.project(name, docs)
		}
		return t
	}).(*schema.TenantEstate)
}

// build makes a value once for each set of files of the tree that are out.
func (s *standing) build(make func() any) any {
	out := s.verdict.outPrint + "\x00" + strings.Join(sortedKeys(s.lost), "\x00")
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, ok := s.built[out]; ok {
		return v
	}
	if len(s.built) >= mostVerdicts {
		clear(s.built)
	}
	v := make()
	s.built[out] = v
	return v
}

// project is a project that was built, and the documents it is built of.
type project struct {
	docs   []*load.Document
	estate *schema.ProjectEstate
}

// mostProjects bounds the names of projects that a history keeps: old names are
// never removed one by one.
const mostProjects = 2_000

// project is the project of these documents, shared between the trees of a tenant.
func (h *history) project(name string, docs []*load.Document) *schema.ProjectEstate {
	h.mu.Lock()
	defer h.mu.Unlock()
	built := h.projects[name]
	for _, b := range built {
		if slices.Equal(b.docs, docs) {
			return b.estate
		}
	}
	p := &schema.ProjectEstate{Name: name}
	for _, doc := range docs {
		p.Put(doc.Decl)
	}
	if len(h.projects) > mostProjects {
		clear(h.projects)
	}
	h.projects[name] = append([]project{{docs, p}}, built[:min(len(built), mostVerdicts-1)]...)
	return p
}
