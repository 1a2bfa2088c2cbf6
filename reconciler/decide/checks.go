package decide

import (
	"fmt"
	"maps"
	"slices"

	"berth/schema"
	"berth/schema/estate"
	"berth/schema/parallel"
	"berth/schema/policy"
)

// Codes of findings about uids.
const (
	// CodeMoved: an instance would change its name with its uid kept.
	CodeMoved = "identity.moved"
	// CodeForeign: an instance comes with the uid of another tenant's that goes.
	CodeForeign = "identity.foreign"
)

// refuse holds documents that policy denies: the policy that the change brings,
// and the one in force before it, so that nobody widens a policy and uses it in
// one change; and policies that allow more than those above them. What is in
// force stays as it is, whatever the rules become, so that only tenants that
// changed are looked at.
func (d *Decider) refuse(before *schema.Desired, today string) estate.Check {
	return func(now *schema.Desired) []schema.Diagnostic {
		return d.refused(now, before, today, func(name string) bool { return now.Tenants[name] != before.Tenants[name] })
	}
}

// refused is what policy refuses of the tenants asked for.
func (d *Decider) refused(now, before *schema.Desired, today string, asked func(tenant string) bool) []schema.Diagnostic {
	var out []schema.Diagnostic
	if now.Platform != before.Platform || asked("") {
		out = append(out, policy.Findings(d.judge.Platform(now.Platform, before.Platform, today))...)
	}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(now.Tenants)), func(name string) bool { return !asked(name) })
	of := make([][]schema.Diagnostic, len(names))
	_ = parallel.Each(len(names), func(i int) error { // none returns an error
		t, was := now.Tenants[names[i]], before.Tenants[names[i]]
		of[i] = slices.Concat(policy.Findings(d.judge.Tenant(now.Platform, t, was, today).Decisions()),
			policy.WiderTenant(now.Platform, t), d.underBase(now.Platform, before.Platform, t, was, today))
		return nil
	})
	return slices.Concat(out, slices.Concat(of...))
}

// upgrades refuses a change of version that the new version's upgrade_from does
// not admit. Both sides are what is in force, so that a version document that
// is held itself admits nothing.
func upgrades(before *schema.Desired) estate.Check {
	return func(now *schema.Desired) []schema.Diagnostic { return schema.Upgrades(before, now) }
}

// CodeBase is put before the code of a rule that refuses by the policy in force
// before a change.
const CodeBase = "base."

// underBase is what the policies in force before would refuse of what a tenant
// declares now. Tenants and projects that were not there had none.
func (d *Decider) underBase(platform, before *schema.Platform, t, was *schema.TenantEstate, today string) []schema.Diagnostic {
	if was == nil || maps.Equal(before.Policies, platform.Policies) && t.Policy == was.Policy && sameEntitlements(t, was) {
		return nil
	}
	p, under := *platform, *t
	p.Policies, under.Policy = before.Policies, was.Policy
	under.Projects = make(map[string]*schema.ProjectEstate, len(t.Projects))
	for name, now := range t.Projects {
		under.Projects[name] = now
		if old := was.Projects[name]; old != nil && !maps.Equal(old.Entitlements, now.Entitlements) {
			q := *now
			q.Entitlements = maps.Clone(now.Entitlements)
			maps.Copy(q.Entitlements, old.Entitlements)
			under.Projects[name] = &q
		}
	}
	var out []schema.Diagnostic
	e := policy.EvaluateTenant(&p, &under, policy.Existing(func(k schema.Key) bool { return has(was, k) }), policy.At(today))
	for _, f := range policy.Findings(e.Decisions()) {
		if f.Severity != schema.SeverityError {
			continue
		}
		f.Code = CodeBase + f.Code
		f.Message = "by the policy in force before this change: " + f.Message + "; let the policy come into force in a change of its own first"
		out = append(out, f)
	}
	return out
}

func sameEntitlements(t, was *schema.TenantEstate) bool {
	for n, p := range t.Projects {
		if old := was.Projects[n]; old != nil && old != p && !maps.Equal(old.Entitlements, p.Entitlements) {
			return false
		}
	}
	return true
}

// moved finds the instances that go from one name to another between two trees.
// The uid says that it is the same instance, which is there to keep what runs;
// and what runs cannot be carried to another name. So the new end is refused.
// Without the uid, the one is deleted and the other made.
//
// The old end is refused with it only within a tenant, where both ends belong
// to the same people. A uid is no secret: were it otherwise, whoever puts
// another tenant's uid into a document of their own would forbid that tenant
// every deletion. For the same reason one tenant's uids say nothing about
// another's moves. Where one hand did both, it is for the guard to see.
func moved(before, main *schema.Desired) []schema.Diagnostic {
	left := instances(before, main)
	came := instances(main, before)
	from := map[string][]*schema.Instance{}
	for _, i := range left {
		from[i.UID] = append(from[i.UID], i)
	}
	var out []schema.Diagnostic
	stays := map[schema.Key]bool{} // old ends told of
	for _, to := range came {
		olds := from[to.UID]
		if len(olds) == 0 {
			continue
		}
		at := to.At("metadata.uid")
		refuse := func(code, message string) {
			out = append(out, schema.Diagnostic{
				Severity: schema.SeverityError, Code: code, File: to.File, Line: at.Line, Column: at.Column, Path: "metadata.uid", Message: message,
			})
		}
		own := slices.IndexFunc(olds, func(old *schema.Instance) bool { return old.Key.Tenant == to.Key.Tenant })
		if own < 0 {
			refuse(CodeForeign, "by its uid this is an instance of another tenant, and what runs cannot be carried to another name; take the uid away to have a new one made")
			continue
		}
		refuse(CodeMoved, fmt.Sprintf("by its uid this is %s, and what runs cannot be carried to another name; move it back, or take the uid away to have the old one deleted and a new one made", olds[own].Key))
		for _, old := range olds {
			if old.Key.Tenant == to.Key.Tenant && !stays[old.Key] {
				stays[old.Key] = true
				out = append(out, schema.Diagnostic{
					Severity: schema.SeverityError, Code: CodeMoved, File: old.File, Line: 1, Column: 1,
					Message: fmt.Sprintf("by its uid it went to %s, and what runs cannot be carried to another name", to.Key),
				})
			}
		}
	}
	return out
}

// abroad are the files of instances that go from one tenant, and those of others'
// that come with their uids, by key.
func abroad(before, main *schema.Desired) map[string][]string {
	from := map[string][]*schema.Instance{}
	for _, i := range instances(before, main) {
		from[i.UID] = append(from[i.UID], i)
	}
	out := map[string][]string{}
	for _, to := range instances(main, before) {
		for _, old := range from[to.UID] {
			if old.Key.Tenant != to.Key.Tenant {
				out[old.File] = append(out[old.File], to.File)
			}
		}
	}
	return out
}

// always is a check that finds the same whatever is in force: both ends of a
// move are held, also when one of them is back already.
func always(found []schema.Diagnostic) estate.Check {
	return func(*schema.Desired) []schema.Diagnostic { return found }
}

// instances are those with a uid that d has and other has not, in order of key.
// Tenants and projects that did not change have none.
func instances(d, other *schema.Desired) []*schema.Instance {
	var out []*schema.Instance
	for name, t := range d.Tenants {
		was := other.Tenants[name]
		if was == t {
			continue
		}
		for project, p := range t.Projects {
			if was != nil && was.Projects[project] == p {
				continue
			}
			for _, i := range p.Instances {
				if i.UID != "" && other.Instance(i.Key) == nil {
					out = append(out, i)
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b *schema.Instance) int { return a.Key.Compare(b.Key) })
	return out
}
