package estate

import (
	"slices"
	"sync"

	"berth/schema"
	"berth/schema/load"
)

// project is a built project, with its documents.
type project struct {
	docs   []*load.Document
	estate *schema.ProjectEstate
}

// projects are the projects of one tenant, shared between its trees.
type projects struct {
	mu    sync.Mutex
	built map[string][]project // by name
}

// mostBuilt limits the kept versions of a project.
const mostBuilt = 4

// mostProjects limits the kept names of projects: old names are never removed one by
// one.
const mostProjects = 2_000

// of returns the project of these documents, shared between the trees of a tenant.
func (p *projects) of(name string, docs []*load.Document) *schema.ProjectEstate {
	p.mu.Lock()
	defer p.mu.Unlock()
	built := p.built[name]
	for _, b := range built {
		if slices.Equal(b.docs, docs) {
			return b.estate
		}
	}
	made := &schema.ProjectEstate{Name: name}
	for _, doc := range docs {
		made.Put(doc.Decl)
	}
	if len(p.built) > mostProjects {
		clear(p.built)
	}
	if p.built == nil {
		p.built = map[string][]project{}
	}
	p.built[name] = append([]project{{docs, made}}, built[:min(len(built), mostBuilt-1)]...)
	return made
}
