package decide

import (
	"maps"
	"slices"

	"berth/schema"
	"berth/schema/estate"
	"berth/schema/parallel"
	"berth/schema/policy"
)

// refuse holds documents that policy denies, the policy of the change or the one in
// force before it, so that nobody widens a policy and uses it in one change. It also
// holds policies that allow more than those above them. A document in force stays in
// force, so only tenants that changed are judged.
func (d *Decider) refuse(before *schema.Desired, today string) estate.Check {
	return func(now *schema.Desired) []schema.Diagnostic {
		return d.refused(now, before, today, func(name string) bool { return now.Tenants[name] != before.Tenants[name] })
	}
}

// refused are the changes of some tenants that policy denies.
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

// operations refuses operations by which more than policy allows would not be done.
func operations(before *schema.Desired, facts Facts) estate.Check {
	return func(now *schema.Desired) (out []schema.Diagnostic) {
		for _, name := range slices.Sorted(maps.Keys(now.Tenants)) {
			if t, was := now.Tenants[name], before.Tenants[name]; t != was && !facts.takesOver {
				out = append(out, policy.WaitingOperations(now.Platform, t, was, facts.isFinished(was))...)
			}
		}
		return out
	}
}

// gpuHours holds changes that add GPUs while the GPU hours of the month are used up. The policy that comes into force counts, so
// that a wider one releases the held changes.
func gpuHours(before *schema.Desired, facts Facts) estate.Check {
	return func(now *schema.Desired) (out []schema.Diagnostic) {
		var usedUp map[string]string
		if policy.HasGPUHours(before) { // else the use is unknown: the change that sets the first bound holds nothing
			usedUp = policy.UsedUp(now, facts.GPUSeconds)
		}
		for _, name := range slices.Sorted(maps.Keys(now.Tenants)) {
			if t, was := now.Tenants[name], before.Tenants[name]; len(usedUp) > 0 && t != was && !facts.takesOver {
				out = append(out, policy.AddsGPUs(t, was, usedUp)...)
			}
		}
		return out
	}
}

// ruled returns a check that applies the rules of the options to the version that comes into
// force. So a held document neither allows nor denies another change.
func (d *Decider) ruled(before *schema.Desired, today string) estate.Check {
	return func(now *schema.Desired) (out []schema.Diagnostic) {
		for _, rule := range d.o.Rules {
			out = append(out, rule(before, now, today)...)
		}
		return out
	}
}

// upgrades refuses a change of version that the upgrade_from of the new version does
// not admit. A held version document admits nothing.
func upgrades(before *schema.Desired) estate.Check {
	return func(now *schema.Desired) []schema.Diagnostic { return schema.Upgrades(before, now) }
}

// uids refuses another uid for a person of an instance in force.
func uids(before *schema.Desired) estate.Check {
	return func(now *schema.Desired) []schema.Diagnostic { return policy.ChangedUIDs(before, now) }
}

// CodeBase is the prefix of the code of a rule that refuses by the policy in force
// before a change.
const CodeBase = "base."

// underBase are the findings by the policies in force before, about the documents
// declared now. New tenants and projects had no policy.
func (d *Decider) underBase(platform, before *schema.Platform, t, was *schema.TenantEstate, today string) []schema.Diagnostic {
	if was == nil {
		return nil
	}
	same := schema.SameDocuments(before.Policies, platform.Policies) && schema.SameDocument(t.Policy, was.Policy) &&
		schema.SameDocuments(before.Admissions[t.Name], platform.Admissions[t.Name])
	p, under := *platform, *t
	p.Policies, p.Admissions, under.Policy = before.Policies, before.Admissions, was.Policy
	under.Projects = make(map[string]*schema.ProjectEstate, len(t.Projects))
	earlier := map[string]bool{} // files of entitlements that are judged as they are in force
	for name, now := range t.Projects {
		under.Projects[name] = now
		if old := was.Projects[name]; old != nil && old != now && !schema.SameDocuments(old.Entitlements, now.Entitlements) {
			q := *now
			q.Entitlements = map[string]*schema.Entitlement{}
			maps.Copy(q.Entitlements, now.Entitlements)
			maps.Copy(q.Entitlements, old.Entitlements)
			for _, e := range old.Entitlements {
				earlier[e.File] = true
			}
			under.Projects[name], same = &q, false
		}
	}
	if same {
		return nil
	}
	var out []schema.Diagnostic
	e := policy.EvaluateTenant(&p, &under, policy.Since(&under, was), policy.At(today))
	for _, f := range policy.Findings(e.Decisions()) {
		if f.Severity != schema.SeverityError || earlier[f.File] {
			continue
		}
		f.Code = CodeBase + f.Code
		f.Message = "by the policy in force before this change: " + f.Message +
			"; let the policy come into force in a change of its own first"
		out = append(out, f)
	}
	return out
}
