package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// verbFields are the fields of an instance that have their own verbs, or that concern
// Berth alone. They never need a configure: software_version follows from version, and a
// runtime compares it with what hosts have.
var verbFields = []string{"desired_state", "key", "operator", "software_version", "suspend", "uid"}

// changes lists the fields that configure changes between before and after. A nil unit
// has no fields.
func changes(before, after *Unit) []Change {
	if before == nil || after == nil {
		return differing(fields(before), fields(after))
	}
	if reflect.DeepEqual(&before.Effective, &after.Effective) { // as in most plans
		return differing(nodeFields(before), nodeFields(after))
	}
	before, after = apart(before, after)
	return differing(fields(before), fields(after))
}

// apart returns both units without the equal fields of their instances. Flattening a
// configuration costs more than the rest of a plan.
func apart(before, after *Unit) (*Unit, *Unit) {
	b, a := *before, *after
	x, y := reflect.ValueOf(&b.Effective).Elem(), reflect.ValueOf(&a.Effective).Elem()
	for i := range x.NumField() {
		if reflect.DeepEqual(x.Field(i).Interface(), y.Field(i).Interface()) {
			x.Field(i).SetZero()
			y.Field(i).SetZero()
		}
	}
	return &b, &a
}

// fields flattens a unit. Instance fields have their JSON path as key; for members see nodeFields.
func fields(u *Unit) map[string]string {
	if u == nil {
		return map[string]string{}
	}
	out := nodeFields(u)
	inst := decode(u.Effective)
	if m, ok := inst.(map[string]any); ok {
		for _, f := range verbFields {
			delete(m, f)
		}
	}
	flatten(out, "", inst, "")
	return out
}

// nodeFields has the node of each member of a unit as members.<name>. A member that is added, removed or moved is described by
// its node alone; see memberChanges.
func nodeFields(u *Unit) map[string]string {
	out := map[string]string{}
	for _, m := range u.Members {
		out["members."+m.Name] = m.Node
	}
	return out
}

// MaxDocumentFields limits the fields of a DocumentChange.
const MaxDocumentFields = 40

// DocumentFields lists the fields that differ between two versions of a document: those of its spec, its labels, its uid
// and whether it is suspended. A nil version has no fields.
func DocumentFields(before, after any) []Change {
	return differing(documentFields(before), documentFields(after))
}

// documentFields decodes only what it lists: most of a document's JSON is the positions of its fields.
func documentFields(doc any) map[string]string {
	out, v := map[string]string{}, reflect.Indirect(reflect.ValueOf(doc))
	if !v.IsValid() {
		return out
	}
	field := func(name string) any {
		if f := v.FieldByName(name); f.IsValid() {
			return decode(f.Addr().Interface())
		}
		return nil
	}
	flatten(out, "spec", field("Spec"), emptyList)
	flatten(out, "labels", field("Labels"), emptyList)
	out["suspend"] = scalar(field("Suspend"))
	if uid, _ := field("UID").(string); uid != "" {
		out["metadata.uid"] = uid
	}
	return out
}

// emptyList shows a list of a document that is there and has no item, which mostly differs from a missing one.
const emptyList = "[]"

// differing lists the fields with different values, by name.
func differing(old, now map[string]string) []Change {
	names := maps.Clone(old)
	maps.Copy(names, now)
	var cs []Change
	for _, f := range slices.Sorted(maps.Keys(names)) {
		if old[f] != now[f] {
			cs = append(cs, Change{Field: f, Before: old[f], After: now[f]})
		}
	}
	return cs
}

// memberChanges lists the changed facts of a member that stays on its node.
func memberChanges(before, after Member) []Change {
	if isSameMember(before, after) {
		return nil
	}
	old, now := map[string]string{}, map[string]string{}
	flatten(old, "members."+before.Name, decode(before), "")
	flatten(now, "members."+after.Name, decode(after), "")
	return differing(old, now)
}

// decode returns v as decoded JSON: maps, slices, strings, json.Number, bool or nil.
func decode(v any) any {
	raw, err := json.Marshal(v)
	if err != nil {
		// The types here are plain. Only an invalid RawMessage fails, and the reader
		// lets none pass.
		panic(fmt.Sprintf("plan: encode %T: %v", v, err))
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var out any
	if err := dec.Decode(&out); err != nil {
		panic(fmt.Sprintf("plan: decode %T: %v", v, err))
	}
	return out
}

// flatten writes the leaves of v below path. A null or an empty mapping has no leaf. An empty list has the
// value of the parameter empty; if that is "", it has no leaf, as an absent list. A list of named objects is keyed by name; a list of
// plain values is one leaf.
func flatten(out map[string]string, path string, v any, empty string) {
	switch v := v.(type) {
	case nil:
	case map[string]any:
		for k, e := range v {
			flatten(out, join(path, k), e, empty)
		}
	case []any:
		if len(v) == 0 {
			if empty != "" {
				out[path] = empty
			}
			return
		}
		if plain(v) {
			var words []string
			for _, e := range v {
				words = append(words, scalar(e))
			}
			out[path] = "[" + strings.Join(words, ", ") + "]"
			return
		}
		for i, e := range v {
			flatten(out, join(path, elementName(v, i)), e, empty)
		}
	default:
		out[path] = scalar(v)
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func plain(v []any) bool {
	return !slices.ContainsFunc(v, func(e any) bool {
		switch e.(type) {
		case map[string]any, []any:
			return true
		}
		return false
	})
}

// elementName returns the name of element i if it is unique in v, otherwise the index. The node
// that is lent or the project that is attached comes before name and type.
func elementName(v []any, i int) string {
	for _, field := range []string{"node", "project_id", "name", "type"} {
		seen := map[string]bool{}
		for _, e := range v {
			m, _ := e.(map[string]any)
			if s, ok := m[field].(string); ok && s != "" {
				seen[s] = true
			}
		}
		if len(seen) == len(v) {
			return v[i].(map[string]any)[field].(string)
		}
	}
	return strconv.Itoa(i)
}

func scalar(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		if v == "" {
			return `""` // distinguishes it from a missing field
		}
		return v
	case bool:
		return strconv.FormatBool(v)
	case json.Number:
		return v.String()
	default:
		panic(fmt.Sprintf("plan: %T is not a JSON value", v))
	}
}
