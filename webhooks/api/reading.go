package api

import (
	"cmp"
	"encoding/json"
	"maps"
	"regexp"
	"slices"

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

// id is the id of a resource, as in events.
func id(h *schema.Header) string { return h.ID() }

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

// privacy decides which texts a caller may read.
type privacy struct {
	isPlatform bool // the caller is a platform user
	tenants    map[string]*schema.TenantEstate
}

// conditions returns the conditions of a resource, with the messages that the caller may read.
func (p privacy) conditions(key schema.Key, cs []plan.Condition) []plan.Condition {
	out := append([]plan.Condition{}, cs...)
	for i := range out {
		out[i].Message = p.visible(key, out[i].Message)
	}
	return out
}

// visible returns a message about a resource if the caller may read it, else "". A
// message about a platform resource is for platform users only, because its cause may
// be in any tenant; a message that names another tenant's document is too.
func (p privacy) visible(key schema.Key, message string) string {
	owner := key.Tenant
	if key.Kind == schema.KindTenant {
		owner = key.Name
	}
	if !p.isPlatform && (owner == "" || p.namesOther(owner, message)) {
		return ""
	}
	return message
}

// kinds finds a tenant's name in a message by a path, or by a kind and name; alone
// finds words that may be a tenant's name.
var (
	kinds = regexp.MustCompile(`\btenants/([-a-z0-9]+)|\bTenant ([-a-z0-9]+)|\bplatform/admissions/([-a-z0-9]+)|` +
		`\b(?:App|AppAdmission) ([-a-z0-9]+)/|\bAppVersion ([-a-z0-9]+)/[-a-z0-9]+/|` +
		`\b(?:Project|Policy|Entitlement|RoleBinding|Instance|ArtifactSource|Artifact|ServiceAccount|` +
		`SharedRuntime|Attachment|Contribution|MemberOperation) ([-a-z0-9]+)[./]`)
	alone = regexp.MustCompile(`(?:^|[^-a-z0-9./])([-a-z0-9]+)[./][a-z0-9]`)
)

// namesOther says whether a message names a document of a tenant other than owner.
func (p privacy) namesOther(owner, message string) bool {
	for _, m := range kinds.FindAllStringSubmatch(message, -1) {
		if cmp.Or(m[1:]...) != owner {
			return true
		}
	}
	for _, m := range alone.FindAllStringSubmatch(message, -1) {
		if m[1] != owner && p.tenants[m[1]] != nil {
			return true
		}
	}
	return false
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
