package estate

import (
	"crypto/sha256"
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
		p.Notes = s.pages
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
				t = &schema.TenantEstate{Name: s.tenant, Projects: map[string]*schema.ProjectEstate{}, Notes: s.pages}
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
			t.Projects[name] = s.buildProject(name, docs, versionsKept*len(projects))
		}
		return t
	}).(*schema.TenantEstate)
}

// versionsKept limits the versions of a project, on average, that the trees of one tenant
// share.
const versionsKept = 8

func (s *standing) buildProject(name string, docs []*load.Document, most int) *schema.ProjectEstate {
	var content []byte
	for _, doc := range docs {
		content = append(append(append(append(content, doc.File.Path...), ' '), doc.File.Blob...), 0)
	}
	p, _ := s.kept.projects.of(sha256.Sum256(content), most, func() (*schema.ProjectEstate, error) { // it returns no error
		p := &schema.ProjectEstate{Name: name}
		for _, doc := range docs {
			p.Put(doc.Decl)
		}
		return p, nil
	})
	return p
}

// build makes a value once for each set of files of the tree that are out.
func (s *standing) build(make func() any) any {
	out := s.verdict.outPrint + "\x00" + strings.Join(sortedKeys(s.lost), "\x00")
	v, _ := s.kept.built.of(out, mostVerdicts, func() (any, error) { return make(), nil }) // it returns no error
	return v
}
