package estate

import (
	"strings"

	"berth/schema"
	"berth/schema/load"
)

// buildPlatform builds the platform from the documents that are not out. Equal documents
// give the same pointer.
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

// buildTenant builds the tenant from the documents that are not out; nil without
// documents. Equal documents give the same pointer, for each project too.
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
			t.Projects[name] = s.projects.of(name, docs)
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
