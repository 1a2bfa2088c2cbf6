package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/schema"
)

// ruleAdmission is the rule of an entitlement or a unit of a tenant's own app that the platform has
// not admitted, or outside of what it admits (requirement F9). Scopes and hosts of sources have the
// rules of the policy keys.
const ruleAdmission = "admission"

// admissionLayers adds the admission of a tenant's own app to the layers above its entitlement. t is
// nil for the platform.
func admissionLayers(p *schema.Platform, t *schema.TenantEstate, app string, above []layer) []layer {
	if t == nil || t.Apps[app] == nil {
		return above
	}
	a := p.Admissions[t.Name][app]
	if a == nil {
		return above // denied
	}
	return append(slices.Clip(above), layer{scope: ScopeAdmission, header: &a.Header, prefix: "spec",
		Overlay: schema.Overlay{AllowedControlPlaneScopes: a.Spec.AllowedControlPlaneScopes,
			ArtifactSourceAllowlist: a.Spec.ArtifactSourceAllowlist}})
}

// notAdmitted describes the missing admission of a tenant's own app.
func notAdmitted(app *schema.App) string {
	path, _ := schema.AdmissionKey(app.Key.Tenant, app.Key.Name).Path()
	return fmt.Sprintf("the app %s of the tenant is a proposal without an admission (no %s): ask a user with apps.catalog.admit for one",
		app.Key.Name, path)
}

// entitlements denies the enabled entitlements of a project to own apps of the tenant that are not
// admitted.
func (r *rules) entitlements(t *schema.TenantEstate, project *schema.ProjectEstate) (ds []schema.Decision) {
	const field = "metadata.name"
	for _, slug := range slices.Sorted(maps.Keys(t.Apps)) {
		app, e := t.Apps[slug], project.Entitlements[slug]
		if e == nil || !e.Spec.Enabled || r.catalog.Admissions[t.Name][slug] != nil {
			continue
		}
		ds = append(ds, schema.Decision{Key: e.Key, Field: field, Verdict: schema.Deny, Rule: ruleAdmission,
			Source: app.At(field), At: e.At(field), Message: notAdmitted(app)})
	}
	return ds
}

// admitted denies a unit of a tenant's own app without an admission, or on a runtime that it does not
// name.
func (j *judgement) admitted() {
	if j.app.Key.Tenant == "" {
		return
	}
	if j.admission == nil {
		j.say(schema.Deny, ruleAdmission, j.app.At("metadata.name"), "spec.app", "", "", "%s", notAdmitted(j.app))
		return
	}
	backend, allowed := j.version.Spec.RuntimeBackend, j.admission.Spec.AllowedRuntimeBackends
	if !slices.Contains(allowed, backend) {
		at := j.version.At("spec.runtime_backend")
		j.say(schema.Deny, ruleAdmission, j.admission.At("spec.allowed_runtime_backends"), "spec.version", backend, "",
			"%s runs on %s (%s:%d), and the app is admitted on %s only", j.version.Key, backend, at.File, at.Line,
			strings.Join(allowed, ", "))
	}
}

// explainAdmission explains the admission of a tenant's own app.
func (j explainer) explainAdmission() []Value {
	if j.app.Key.Tenant == "" {
		return nil
	}
	steps := []Step{{ScopeApp, j.app.At("metadata.name"), "proposed", false}}
	if j.admission == nil {
		return []Value{j.value("admitted", false, steps, "spec.app", ruleAdmission)}
	}
	allowed := j.admission.Spec.AllowedRuntimeBackends
	return []Value{
		j.value("admitted", true, append(steps, Step{ScopeAdmission, j.admission.At("metadata.name"), "admitted", true}), "spec.app",
			ruleAdmission),
		j.value("allowed_runtime_backends", allowed,
			[]Step{{ScopeAdmission, j.admission.At("spec.allowed_runtime_backends"), allowed, allowed}}, "spec.version", ruleAdmission),
	}
}
