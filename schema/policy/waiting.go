package policy

import (
	"cmp"
	"maps"
	"slices"

	"berth/schema"
)

// WaitingOperations refuses new operations of a tenant by which more than its policies allow would not be done. Those in
// before, which may be nil, are never refused, and count unless they are finished. A suspended one counts: it may go on at
// any time.
func WaitingOperations(
	p *schema.Platform, t, before *schema.TenantEstate, finished func(*schema.MemberOperation) bool,
) (out []schema.Diagnostic) {
	layers := tenantLayers(platformLayers(p), t, regionsBySite(p))
	if _, _, isSet := maxWaiting().of(true).least(layers); !isSet {
		if _, _, isSet = maxWaiting().of(false).least(layers); !isSet {
			return nil
		}
	}
	isNew := newOperations(before)
	count := map[string]int{} // by project; "": of the tenant
	for _, o := range waitingInOrder(t, isNew, finished) {
		bounds := []string{"", o.Key.Project}[:min(1+len(o.Key.Project), 2)]
		refused := false
		for _, of := range bounds {
			k, n := maxWaiting().of(of == ""), count[of]+1
			most, by, isSet := k.least(layers)
			if !isSet || n <= most || !isNew(o) {
				continue
			}
			refused = true
			whose := "project"
			if of == "" {
				whose = "tenant"
			}
			out = append(out, o.At("metadata.name").Finding(schema.SeverityError, "metadata.name", "policy."+k.key,
				"would be operation %d of the %s that is not done, at most %d are allowed (%s); wait until another is done",
				n, whose, most, by.at(k.key).Place()))
		}
		for _, of := range bounds {
			if !refused {
				count[of]++
			}
		}
	}
	return out
}

// newOperations returns a function that reports whether before, which may be nil, lacks an operation.
func newOperations(before *schema.TenantEstate) func(*schema.MemberOperation) bool {
	known := map[schema.Key]string{} // ids
	for _, o := range operationsOf(before) {
		known[o.Key] = o.ID()
	}
	return func(o *schema.MemberOperation) bool { return known[o.Key] != o.ID() }
}

// waitingInOrder returns the operations of a tenant that are not finished: those in force before, then new ones, each by key.
func waitingInOrder(t *schema.TenantEstate, isNew, finished func(*schema.MemberOperation) bool) []*schema.MemberOperation {
	rank := func(o *schema.MemberOperation) int {
		if isNew(o) {
			return 1
		}
		return 0
	}
	all := slices.DeleteFunc(operationsOf(t), finished)
	slices.SortFunc(all, func(a, b *schema.MemberOperation) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.Key.Compare(b.Key))
	})
	return all
}

// operationsOf returns the operations of a tenant, which may be nil, also those of its shared runtimes.
func operationsOf(t *schema.TenantEstate) (out []*schema.MemberOperation) {
	if t == nil {
		return nil
	}
	for _, p := range t.Projects {
		out = slices.AppendSeq(out, maps.Values(p.Operations))
	}
	for _, r := range t.SharedRuntimes {
		out = slices.AppendSeq(out, maps.Values(r.Operations))
	}
	return out
}
