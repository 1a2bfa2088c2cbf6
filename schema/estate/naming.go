package estate

import (
	"strings"

	"berth/schema"
	"berth/schema/load"
)

// named returns the fields of a platform document that name tenants and projects.
func named(doc *load.Document) (at, owners []string, code, effect string) {
	list := func(path string, owners []string) (at, _ []string) {
		for i := range owners {
			at = append(at, load.Item(path, i))
		}
		return at, owners
	}
	switch d := doc.Decl.(type) {
	case *schema.Node:
		if d.Spec.Reserved != "" {
			return []string{"spec.reserved_for"}, []string{d.Spec.Reserved}, "ref.missing-owner", "nobody can use this node"
		}
	case *schema.QueueMap:
		at, owners = list("spec.applies_to", d.Spec.AppliesTo)
		return at, owners, "ref.missing-owner", "it has no queues to map"
	case *schema.RateCard:
		at, owners = list("spec.applies_to", d.Spec.AppliesTo)
		return at, owners, "ref.missing-owner", "no use of it is priced by this card"
	case *schema.HookRule:
		at, owners = list("spec.applies_to", d.Spec.AppliesTo)
		return at, owners, "ref.missing-owner", "the rule never fires for it"
	case *schema.SharedRuntime:
		at, owners = list("spec.attached_project_ids", d.Spec.AttachedProjectIDs)
		return at, owners, "ref.missing-project", "it is not attached"
	}
	return nil, nil, "", ""
}

// namesOwners reports whether a document of the platform belongs to nameIndex.owners.
func namesOwners(doc *load.Document) bool {
	switch doc.Key.Kind {
	case schema.KindAttachment, schema.KindSharedRuntime:
		return true
	}
	_, owners, _, _ := named(doc)
	return len(owners) > 0
}

// Meant suggests a name for an unknown one, or lists the names if they are few, for the end of a
// message.
func Meant(name string, names []string) string {
	if hint := load.DidYouMean(name, names); hint != "" {
		return hint
	}
	if len(names) == 0 || len(names) > 20 { // a long list does not help
		return ""
	}
	return ", there is " + strings.Join(names, ", ")
}
