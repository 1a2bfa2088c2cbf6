package load

import (
	"encoding/json"
	"strings"

	"berth/schema"
)

// A document with errors of its own is not in Desired. Its draft, the readable part, is
// still checked against the documents that it refers to, so that people see all errors
// in one round.

// draft returns a document without the fields that have problems, or nil if too little
// is left. A draft permits and declares nothing.
func (r *documentParser) draft(doc *Document, t *tree, problems []problem) *Document {
	if len(problems) >= MaxFindings {
		return nil // further findings would be cut
	}
	bad := make(map[string]bool, len(problems))
	for _, p := range problems {
		bad[p.path] = true
	}
	left, ok := prune(t.value, "", bad)
	if !ok {
		return nil
	}
	value := left.(map[string]any)
	if _, ok := value["spec"].(map[string]any); !ok {
		return nil
	}
	data, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	spec, err := decode(doc.Key.Kind, data, &schema.Header{Key: doc.Key, File: doc.File.Path, Blob: doc.File.Blob, Fields: r.fields(t)})
	if err != nil {
		return nil
	}
	if i, ok := spec.(*schema.Instance); ok && i.Spec.ControlPlaneScope == "" {
		i.Spec.SharedRuntime = "" // its owner is unknown
	}
	return &Document{File: doc.File, Key: doc.Key, Decl: spec, Header: spec.Head(), tree: &tree{value: value, at: t.at}}
}

// draftParameters returns the problems of a version's parameters, if they and their
// backend are readable.
func (r *documentParser) draftParameters(draft *Document) []problem {
	d, ok := draft.Decl.(*schema.AppVersion)
	if !ok {
		return nil
	}
	if _, ok := draft.tree.value["spec"].(map[string]any)["manifest"].(map[string]any); !ok {
		return nil
	}
	return r.parameters(d, draft.tree)
}

// prune copies value without the bad paths. It drops a whole list with a bad item,
// because the indices of the others would change.
func prune(value any, path string, bad map[string]bool) (left any, ok bool) {
	if bad[path] {
		return nil, false
	}
	switch v := value.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for name, inner := range v {
			if kept, ok := prune(inner, child(path, name), bad); ok {
				m[name] = kept
			}
		}
		return m, true
	case []any:
		list := make([]any, len(v))
		for i, inner := range v {
			if list[i], ok = prune(inner, Item(path, i), bad); !ok {
				return nil, false
			}
		}
		return list, true
	}
	return value, true
}

// Within reports whether a path is equal to another, or below it. Nothing is below "",
// the file.
func Within(path, of string) bool {
	rest, ok := strings.CutPrefix(path, of)
	return ok && (rest == "" || of != "" && (rest[0] == '.' || rest[0] == '['))
}
