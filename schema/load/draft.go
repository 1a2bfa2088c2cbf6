package load

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"berth/schema"
)

// A document with errors of its own is not in Desired. What can be read of it, its
// draft, is still held against the documents that it refers to, so that people see
// all errors in one round.

// draft is a document without the fields that have problems, or nil if too little
// is left. Nothing may be permitted or declared by it.
func (r *reader) draft(doc *document, t *tree, problems []problem) *document {
	if len(problems) >= maxFindings {
		return nil // more would not be shown
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
	spec, err := decode(doc.key.Kind, data, &schema.Header{Key: doc.key, File: doc.file.Path, Blob: doc.file.Blob, Fields: r.fields(t)})
	if err != nil {
		return nil
	}
	if i, ok := spec.(*schema.Instance); ok && i.Spec.ControlPlaneScope == "" {
		i.Spec.SharedRuntime = "" // whose it would be is not known
	}
	return &document{file: doc.file, key: doc.key, spec: spec, header: spec.Head(), tree: &tree{value: value, at: t.at}}
}

// draftParameters are the problems of a version's parameters, where they and their
// backend can be read.
func (r *reader) draftParameters(draft *document) []problem {
	d, ok := draft.spec.(*schema.AppVersion)
	if !ok {
		return nil
	}
	if _, ok := draft.tree.value["spec"].(map[string]any)["manifest"].(map[string]any); !ok {
		return nil
	}
	return r.parameters(d, draft.tree)
}

// prune copies value without what is at the bad paths. A list with a bad item goes
// as a whole: the places of the others would change.
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
			if list[i], ok = prune(inner, item(path, i), bad); !ok {
				return nil, false
			}
		}
		return list, true
	}
	return value, true
}

// drafts checks the drafts of a tenant's invalid documents.
func (c *tenantCheck) drafts(ctx context.Context) error {
	return c.eachDraft(func(doc *document) (*verdict, error) {
		if doc.key.Kind == schema.KindServiceAccount {
			return nil, nil // its keys are compared with those of valid accounts only
		}
		scratch := newTenantCheck(c.loader, c.part, c.catalog, nil)
		scratch.out, scratch.lost = c.out, c.lost
		if !scratch.belongs(doc) {
			return scratch.verdict, nil
		}
		return scratch.verdict, scratch.document(ctx, doc)
	})
}

// drafts checks the drafts of the platform's invalid documents, of the kinds that
// refer to others.
func (c *platformCheck) drafts(ctx context.Context) error {
	kinds := []schema.Kind{schema.KindAppVersion, schema.KindHookRule, schema.KindSharedRuntime, schema.KindAttachment, schema.KindMemberOperation}
	return c.eachDraft(func(doc *document) (*verdict, error) {
		if !slices.Contains(kinds, doc.key.Kind) {
			return nil, nil
		}
		scratch := platformCheck{check: newCheck(c.loader, c.part, c.catalog, nil)}
		scratch.out = c.out
		return scratch.verdict, scratch.document(ctx, doc)
	})
}

// eachDraft adds the errors that check finds in a draft, of those fields that the
// document has and that have no problem of their own. They hold nothing more: the
// document is invalid already.
func (c *check) eachDraft(check func(draft *document) (*verdict, error)) error {
	if c.part.valid {
		return nil
	}
	for _, doc := range c.part.docs {
		if doc.draft == nil {
			continue
		}
		v, err := check(doc.draft)
		if err != nil {
			return err
		}
		if v == nil {
			continue
		}
		for _, f := range v.findings {
			_, there := doc.draft.tree.at[f.Path]
			if f.Severity == schema.SeverityError && there && !slices.ContainsFunc(doc.findings, func(own schema.Diagnostic) bool { return within(f.Path, own.Path) }) {
				c.findings = append(c.findings, f)
			}
		}
	}
	return nil
}

// within says whether a path is another, or below it. Nothing is below "", the file.
func within(path, of string) bool {
	rest, ok := strings.CutPrefix(path, of)
	return ok && (rest == "" || of != "" && (rest[0] == '.' || rest[0] == '['))
}
