package schema

import "reflect"

// Document is a document of any kind.
type Document interface{ Head() *Header }

// document makes an empty document.
func document[T any, D interface {
	*T
	Document
}]() Document {
	return D(new(T))
}

// Others are the documents of kinds without a field of their own, by Key.String.
type Others map[string]Document

// Put adds a document of the platform.
func (p *Platform) Put(d Document) {
	if name := sharedName(d.Head().Key); name != "" {
		put(runtimeIn(&p.SharedRuntimes, name), d)
		return
	}
	put(p, d)
}

// Put adds a document of the tenant that belongs to no project.
func (t *TenantEstate) Put(d Document) {
	if name := sharedName(d.Head().Key); name != "" {
		put(runtimeIn(&t.SharedRuntimes, name), d)
		return
	}
	put(t, d)
}

// Put adds a document of the project.
func (p *ProjectEstate) Put(d Document) { put(p, d) }

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

func runtimeIn(at *map[string]*SharedRuntimeEstate, name string) *SharedRuntimeEstate {
	if *at == nil {
		*at = map[string]*SharedRuntimeEstate{}
	}
	if (*at)[name] == nil {
		(*at)[name] = &SharedRuntimeEstate{Name: name}
	}
	return (*at)[name]
}

// field finds the field of a part of Desired for documents of a type: one of that type,
// else a map of them by name, or by parent and name; else Others.
func field(part any, document reflect.Type) reflect.Value {
	v := reflect.ValueOf(part).Elem()
	for i := range v.NumField() {
		t := v.Type().Field(i).Type
		for t.Kind() == reflect.Map {
			t = t.Elem()
		}
		if t == document {
			return v.Field(i)
		}
	}
	return v.FieldByName("Others")
}

// entry is the name of k's document in a map of documents.
func entry(in reflect.Value, k Key) reflect.Value {
	if in.Type() == reflect.TypeFor[Others]() {
		return reflect.ValueOf(k.String())
	}
	return reflect.ValueOf(k.Name)
}

// put adds a document to a part of Desired.
func put(part any, d Document) {
	k, to := d.Head().Key, field(part, reflect.TypeOf(d))
	if to.Kind() != reflect.Map {
		to.Set(reflect.ValueOf(d))
		return
	}
	if to.IsNil() {
		to.Set(reflect.MakeMap(to.Type()))
	}
	if inner := to.Type().Elem(); inner.Kind() == reflect.Map {
		parent := reflect.ValueOf(k.Parent)
		if !to.MapIndex(parent).IsValid() {
			to.SetMapIndex(parent, reflect.MakeMap(inner))
		}
		to = to.MapIndex(parent)
	}
	to.SetMapIndex(entry(to, k), reflect.ValueOf(d))
}

// get is k's document in a part of Desired, or nil.
func get(part any, k Key) Document {
	from := field(part, reflect.TypeOf(k.Kind.New()))
	if from.Kind() == reflect.Map && from.Type().Elem().Kind() == reflect.Map {
		from = from.MapIndex(reflect.ValueOf(k.Parent))
	}
	if from.IsValid() && from.Kind() == reflect.Map {
		from = from.MapIndex(entry(from, k))
	}
	if !from.IsValid() || from.IsNil() {
		return nil
	}
	return from.Interface().(Document)
}

// isEmpty reports whether the platform declares nothing.
func (p *Platform) isEmpty() bool {
	if p == nil {
		return true
	}
	v := reflect.ValueOf(p).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Map && f.Len() > 0 || f.Kind() == reflect.Pointer && !f.IsNil() {
			return false
		}
	}
	return true
}

// Document is the valid document of key, or nil.
func (d *Desired) Document(key Key) Document {
	if _, ok := key.place(); !ok {
		return nil
	}
	if part := d.part(key); part != nil {
		if doc := get(part, key); doc != nil && doc.Head().Key == key {
			return doc
		}
	}
	return nil
}

// part is the part of d that has the document of key, or nil.
func (d *Desired) part(key Key) any {
	tenant, project := key.Tenant, key.Project
	switch key.Kind {
	case KindTenant:
		tenant = key.Name
	case KindProject:
		project = key.Name
	}
	t := d.Tenants[tenant]
	switch {
	case tenant != "" && t == nil:
		return nil
	case project != "":
		if p := t.Projects[project]; p != nil {
			return p
		}
	case sharedName(key) != "":
		if r := d.SharedRuntime(tenant, sharedName(key)); r != nil {
			return r
		}
	case t != nil:
		return t
	case d.Platform != nil:
		return d.Platform
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
