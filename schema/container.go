package schema

// Document is a document of any kind.
type Document interface{ Head() *Header }

// of is a document type: a pointer to a struct with a Header.
type of[T any] interface {
	*T
	Document
}

// document makes an empty document.
func document[T any, D of[T]]() Document { return D(new(T)) }

// holder is the parts of a Desired that may hold a key's document. A part that the
// key does not name is nil.
type holder struct {
	platform *Platform
	tenant   *TenantEstate
	project  *ProjectEstate
	shared   *SharedRuntimeEstate
}

// slot is the field, or the entry of a map, that holds a document.
type slot struct {
	get func() Document // nil: empty
	set func(Document)
}

// single is the slot of a field.
func single[T any, D of[T]](at *D) slot {
	return slot{
		get: func() Document {
			if *at == nil {
				return nil
			}
			return *at
		},
		set: func(d Document) { *at = d.(D) },
	}
}

// entry is the slot of an entry in a map.
func entry[T any, D of[T]](at *map[string]D, name string) slot {
	return slot{
		get: func() Document {
			if d := (*at)[name]; d != nil {
				return d
			}
			return nil
		},
		set: func(d Document) {
			if *at == nil {
				*at = map[string]D{}
			}
			(*at)[name] = d.(D)
		},
	}
}

func versionOf(p *Platform, k Key) slot {
	versions := p.Versions[k.Parent]
	s := entry(&versions, k.Name)
	return slot{get: s.get, set: func(d Document) {
		s.set(d)
		if p.Versions == nil {
			p.Versions = map[string]map[string]*AppVersion{}
		}
		p.Versions[k.Parent] = versions
	}}
}

// Others are the documents of kinds without a field of their own, by Key.String.
type Others map[string]Document

func (o *Others) slot(k Key) slot {
	return slot{
		get: func() Document { return (*o)[k.String()] },
		set: func(d Document) {
			if *o == nil {
				*o = Others{}
			}
			(*o)[k.String()] = d
		},
	}
}

// slot is the slot of k's document in h.
func (h holder) slot(k Key) slot {
	switch of := k.Kind.Info().slot; {
	case of != nil:
		return of(h, k)
	case h.project != nil:
		return h.project.Others.slot(k)
	case h.tenant != nil:
		return h.tenant.Others.slot(k)
	}
	return h.platform.Others.slot(k)
}

// sharedName is the shared runtime that a document belongs to, which has its place
// in the runtime's directory; "" if it belongs to none.
func sharedName(k Key) string {
	switch {
	case k.Kind == KindSharedRuntime:
		return k.Name
	case k.Kind == KindAttachment || k.Kind == KindMemberOperation:
		return k.Parent
	}
	return ""
}

// Put adds a document of the platform.
func (p *Platform) Put(d Document) {
	k := d.Head().Key
	h := holder{platform: p}
	if name := sharedName(k); name != "" {
		h.shared = runtimeIn(&p.SharedRuntimes, name)
	}
	h.slot(k).set(d)
}

// Put adds a document of the tenant that belongs to no project.
func (t *TenantEstate) Put(d Document) {
	k := d.Head().Key
	h := holder{tenant: t}
	if name := sharedName(k); name != "" {
		h.shared = runtimeIn(&t.SharedRuntimes, name)
	}
	h.slot(k).set(d)
}

// Put adds a document of the project.
func (p *ProjectEstate) Put(d Document) { holder{project: p}.slot(d.Head().Key).set(d) }

func runtimeIn(at *map[string]*SharedRuntimeEstate, name string) *SharedRuntimeEstate {
	if *at == nil {
		*at = map[string]*SharedRuntimeEstate{}
	}
	if (*at)[name] == nil {
		(*at)[name] = &SharedRuntimeEstate{Name: name}
	}
	return (*at)[name]
}

// Document is the valid document of key, or nil.
func (d *Desired) Document(key Key) Document {
	if _, ok := key.place(); !ok {
		return nil
	}
	var h holder
	tenant, project := key.Tenant, key.Project
	switch key.Kind {
	case KindTenant:
		tenant = key.Name
	case KindProject:
		project = key.Name
	}
	if tenant == "" {
		h.platform = d.Platform
	} else if h.tenant = d.Tenants[tenant]; h.tenant == nil {
		return nil
	}
	if project != "" {
		if h.tenant == nil || h.tenant.Projects[project] == nil {
			return nil
		}
		h.project = h.tenant.Projects[project]
	}
	if name := sharedName(key); name != "" {
		if h.shared = d.SharedRuntime(tenant, name); h.shared == nil {
			return nil
		}
	}
	if doc := h.slot(key).get(); doc != nil && doc.Head().Key == key {
		return doc
	}
	return nil
}

// Header is the header of the valid document of key, or nil.
func (d *Desired) Header(key Key) *Header {
	if doc := d.Document(key); doc != nil {
		return doc.Head()
	}
	return nil
}
