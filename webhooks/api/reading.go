package api

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"berth/reconciler/plan"
	"berth/schema"
)

// reading is the view of one request: all of it is of the same moment.
type reading struct {
	plan.View
	params  map[string]string
	tenant  string
	project string
	sight
	privacy
	held map[schema.Key]schema.Held // built at the first use
}

// find returns the document of a name, else of a uid. Names take precedence, so that
// a uid cannot hide the document of that name.
func find[D interface{ Head() *schema.Header }](docs map[string]D, want string) (D, bool) {
	if d, ok := docs[want]; ok {
		return d, true
	}
	for _, name := range slices.Sorted(maps.Keys(docs)) {
		if docs[name].Head().UID == want {
			return docs[name], true
		}
	}
	var none D
	return none, false
}

// all lists the documents of a map.
func all[D any](docs map[string]D, shape func(D) any) *listing {
	return &listing{names: slices.Collect(maps.Keys(docs)), at: func(name string) any { return shape(docs[name]) }}
}

// collection is a list and the items that it names by a parameter.
type collection struct {
	list func(*reading) *listing
	item func(*reading) any
}

// documents makes a collection of documents; of returns false if their owner does not
// exist.
func documents[D interface{ Head() *schema.Header }](
	parameter string, of func(*reading) (map[string]D, bool), shape func(*reading, D) any,
) collection {
	return collection{
		list: func(r *reading) *listing {
			docs, ok := of(r)
			if !ok {
				return nil
			}
			return all(docs, func(d D) any { return shape(r, d) })
		},
		item: func(r *reading) any {
			docs, ok := of(r)
			if !ok {
				return nil
			}
			d, ok := find(docs, r.params[parameter])
			if !ok {
				return nil
			}
			return shape(r, d)
		},
	}
}

// members makes a collection of a unit's placed members.
func members(parameter string, of func(*reading) (map[string]member, bool)) collection {
	return collection{
		list: func(r *reading) *listing {
			ms, ok := of(r)
			if !ok {
				return nil
			}
			return all(ms, func(m member) any { return m })
		},
		item: func(r *reading) any {
			ms, _ := of(r)
			if m, ok := ms[r.params[parameter]]; ok {
				return m
			}
			return nil
		},
	}
}

// holding builds the index of held changes, once.
func (r *reading) holding() {
	if r.held != nil {
		return
	}
	r.held = make(map[schema.Key]schema.Held, len(r.Held))
	for _, h := range r.Held {
		r.held[h.Key] = h
	}
}

func (r *reading) declared(h *schema.Header) declared {
	r.holding()
	d := declared{DeclaredIn: h.File, Labels: h.Labels, Suspended: h.Suspend}
	if r.Dates != nil {
		d.CreatedAt, d.UpdatedAt = r.Dates(h.File, h.Blob)
	}
	if was, ok := r.held[h.Key]; ok {
		d.Held = &held{was.Reason, r.visible(h.Key, was.Message)}
	}
	return d
}

// statusOf returns the status of a resource that is not a unit. The phase is initial
// before Berth has reconciled it.
func (r *reading) statusOf(key schema.Key, initial string) (phase string, f followed) {
	if s := r.Things[key]; s != nil {
		return cmp.Or(s.Phase, initial), followed{r.conditions(key, s.Conditions), s.Revision, s.CorrelationID}
	}
	return initial, followed{Conditions: []plan.Condition{}}
}

func object(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("{}")
	}
	return raw
}

func (r *reading) projectEstate() *schema.ProjectEstate {
	return r.Desired.Tenants[r.tenant].Projects[r.project]
}

// createdAt is when a document was created; the zero time if unknown.
func createdAt(r *reading, h *schema.Header) time.Time {
	if r.Dates == nil {
		return time.Time{}
	}
	created, _ := r.Dates(h.File, h.Blob)
	return created
}

func (r *reading) instanceID(name string) string {
	if d := r.projectEstate().Instances[name]; d != nil {
		return d.ID()
	}
	return name
}

// sharedID is the id of a shared runtime of a tenant; of the platform for tenant "".
func (r *reading) sharedID(tenant, name string) string {
	if s := r.Desired.SharedRuntime(tenant, name); s != nil && s.Runtime != nil {
		return s.Runtime.ID()
	}
	return name
}
