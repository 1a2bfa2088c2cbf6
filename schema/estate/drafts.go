package estate

import (
	"context"
	"slices"

	"berth/schema"
	"berth/schema/load"
)

// drafts checks the drafts of a tenant's invalid documents.
func (c *tenantCheck) drafts(ctx context.Context) error {
	return c.eachDraft(func(doc *load.Document) (*verdict, error) {
		if doc.Key.Kind == schema.KindServiceAccount {
			return nil, nil // its keys are compared with those of valid accounts only
		}
		scratch := newTenantCheck(c.loader, c.tree, c.catalog, nil)
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
	return c.eachDraft(func(doc *load.Document) (*verdict, error) {
		if !slices.Contains(kinds, doc.Key.Kind) {
			return nil, nil
		}
		scratch := platformCheck{check: newCheck(c.loader, c.tree, c.catalog, nil)}
		scratch.out = c.out
		return scratch.verdict, scratch.document(ctx, doc)
	})
}

// eachDraft adds the errors that check finds in a draft, of those fields that the
// document has and that have no problem of their own. They hold nothing more: the
// document is invalid already.
func (c *check) eachDraft(check func(draft *load.Document) (*verdict, error)) error {
	if c.tree.valid {
		return nil
	}
	for _, doc := range c.tree.docs {
		if doc.Draft == nil {
			continue
		}
		v, err := check(doc.Draft)
		if err != nil {
			return err
		}
		if v == nil {
			continue
		}
		for _, f := range v.findings {
			there := doc.Draft.Has(f.Path)
			if f.Severity == schema.SeverityError && there && !slices.ContainsFunc(doc.Findings, func(own schema.Diagnostic) bool { return load.Within(f.Path, own.Path) }) {
				c.findings = append(c.findings, f)
			}
		}
	}
	return nil
}
