package estate

import (
	"slices"
	"strings"

	"berth/schema"
	"berth/schema/load"
)

// What of a part comes into Desired.

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
	return s.verdict.outPrint + "\x00" + strings.Join(sortedKeys(s.lost), "\x00")
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
	b := &schema.Platform{}
	for _, doc := range s.docs {
		if s.out(doc) {
			continue
		}
		b.Put(doc.Decl)
	}
	if len(s.platforms) >= mostVerdicts {
		clear(s.platforms)
	}
	s.platforms[print] = b
	return b
}

func newMap[V any]() map[string]V { return map[string]V{} }

// buildTenant is the tenant of the documents not out, or nil if there is none.
// The same documents give the same value, of each project too.
func (s *standing) buildTenant(l *Loader) *schema.TenantEstate {
	print := s.outPrint()
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.estates[print]; ok {
		return t
	}
	t := &schema.TenantEstate{Name: s.tenant, Projects: map[string]*schema.ProjectEstate{}}
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
			for _, doc := range docs {
				t.Put(doc.Decl)
			}
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

type projectKey struct{ tenant, name string }

// project is a project that was built, and of what.
type project struct {
	docs   []*load.Document
	estate *schema.ProjectEstate
}

// project builds the project of these documents, or finds it built.
func (l *Loader) project(key projectKey, docs []*load.Document) *schema.ProjectEstate {
	built, _ := l.projects.get(key)
	for _, b := range built {
		if slices.Equal(b.docs, docs) {
			return b.estate
		}
	}
	p := &schema.ProjectEstate{Name: key.name}
	for _, doc := range docs {
		p.Put(doc.Decl)
	}
	l.projects.add(key, append([]project{{docs, p}}, built[:min(len(built), mostVerdicts-1)]...))
	return p
}
