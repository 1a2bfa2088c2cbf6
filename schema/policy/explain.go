package policy

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"berth/schema"
)

// Explanation is the effective values of one instance, and the layers that set each.
// A value's JSON is null where it is not limited.
type Explanation struct {
	Key           schema.Key            `json:"key"`
	Denied        bool                  `json:"denied"` // denied by a rule
	Noncompliance *schema.Noncompliance `json:"noncompliance,omitempty"`
	Values        []Value               `json:"values"`
}

// Value is one effective value of an instance.
type Value struct {
	// as in the documents, such as regions, roles.worker.sku, max_gpus_per_instance, config.partitions
	Field     string            `json:"field"`
	Value     any               `json:"value"` // the value in Effective, or the effective limit
	Asked     any               `json:"asked,omitempty"`
	Steps     []Step            `json:"steps"`               // layers that set it, from wide to narrow
	Decisions []schema.Decision `json:"decisions,omitempty"` // decisions of policy about it
}

// Step is the value that one layer sets.
type Step struct {
	Scope  Scope           `json:"scope"`
	Source schema.Position `json:"source"`
	Says   any             `json:"says"`
	Value  any             `json:"value"` // value after the layer
}

// Explain explains an instance; ok is false without a valid one of that key. It
// takes the arguments of EvaluateTenant and uses the same code: a value after a layer is
// the result of an evaluation that ends with that layer.
func Explain(p *schema.Platform, t *schema.TenantEstate, key schema.Key, opts ...Option) (Explanation, bool) {
	project := t.Projects[key.Project]
	if project == nil || key.Tenant != t.Name {
		return Explanation{}, false
	}
	r, o := newRules(p), with(opts)
	above := tenantLayers(r.layers, t, r.sites)
	parts := r.parts(t, above, o)
	all := r.project(t, project, above, o.with(o.ofTenant(above, parts)[key.Project]))
	i := slices.IndexFunc(all, func(j *judgement) bool { return j.key == key })
	if i < 0 {
		return Explanation{}, false
	}
	j := explainer{all[i].outside(o.outside)}
	out := j.explanation()
	out.Values = slices.Concat(j.explainCatalog(), j.explainLists("regions"), j.explainLimits(all), j.explainQuotas(parts),
		[]Value{j.explainSources(), j.explainState()}, j.explainSuspend(), j.explainDocument(), j.explainUsers(t, project),
		j.explainConfig())
	if j.instance.Spec.SharedRuntime != "" {
		out.Values = append(carriedOnly(out.Values), j.explainView(p, t)...)
	}
	return out, true
}

// explainView returns the terms of an instance's project on the shared runtime that it uses.
func (j explainer) explainView(p *schema.Platform, t *schema.TenantEstate) []Value {
	of := t.SharedRuntimes[j.instance.Spec.SharedRuntime]
	if j.instance.Spec.ControlPlaneScope == "platform" {
		of = p.SharedRuntimes[j.instance.Spec.SharedRuntime]
	}
	if of == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(of.Attachments)) {
		if a := of.Attachments[name]; a.Spec.ProjectID == j.key.ProjectID() {
			return j.explainTerms("submission_limits", a, j.instance)
		}
	}
	return nil
}

// explainer explains the evaluation of an instance or a shared runtime.
type explainer struct{ *judgement }

// explanation returns the compliance of the instance, without its values.
func (j explainer) explanation() Explanation {
	return Explanation{Key: j.key, Noncompliance: j.noncompliance, Denied: j.denied() || j.noncompliance != nil}
}

// value returns a Value with the decisions about one field of the document by a
// rule; any rule if that is "".
func (j explainer) value(name string, v any, steps []Step, field, rule string) Value {
	out := Value{Field: name, Value: v, Steps: steps}
	for _, d := range j.decisions {
		if d.Field == field && (rule == "" || d.Rule == rule) {
			out.Decisions = append(out.Decisions, d)
		}
	}
	return out
}

// said returns the step of a document for its field; with the scope of a default if
// the reader filled the field in.
func said(scope Scope, h *schema.Header, field string, says, value any) Step {
	if _, ok := slices.BinarySearchFunc(h.Fields, field,
		func(f schema.FieldPos, path string) int { return strings.Compare(f.Path, path) }); !ok {
		scope = ScopeDefault
	}
	return Step{scope, h.At(field), says, value}
}

func (j explainer) asks(field string, says, value any) Step {
	scope := ScopeInstance
	if j.key.Kind == schema.KindSharedRuntime {
		scope = ScopeSharedRuntime
	}
	return said(scope, &j.instance.Header, field, says, value)
}

func (j explainer) explainCatalog() []Value {
	status := func(field string, scope Scope, h *schema.Header, s schema.CatalogStatus, at string) Value {
		return j.value(field, string(s), []Step{said(scope, h, "spec.status", string(s), string(s))}, at, "status")
	}
	denied := false
	denies := []Step{}
	for _, l := range j.all {
		if len(l.deny) > 0 {
			denied = denied || slices.Contains(l.deny, j.app.Key.Name)
			denies = append(denies, Step{l.scope, l.at("hard_deny.apps"), l.deny, denied})
		}
	}
	out := []Value{
		status("app.status", ScopeApp, &j.app.Header, j.app.Spec.Status, "spec.app"),
		status("version.status", ScopeVersion, &j.version.Header, j.version.Spec.Status, "spec.version"),
		j.value("hard_deny", denied, denies, "spec.app", "hard_deny"),
	}
	if j.ent != nil {
		enabled := j.ent.Spec.Enabled
		out = append(out, j.value("entitlement.enabled", enabled, []Step{{ScopeEntitlement, j.ent.At("spec.enabled"), enabled, enabled}},
			"spec.app", "entitlement"))
	}
	return append(out, j.explainAdmission()...)
}

// fold returns the steps of the layers that have a list.
func (k list) fold(layers []layer) []Step {
	steps := []Step{}
	for i, l := range layers {
		if says := k.of(l.Overlay); says != nil {
			left, _ := k.allow(nil, layers[:i+1])
			steps = append(steps, Step{l.scope, l.at(k.key), says, left})
		}
	}
	return steps
}

// orNil turns a nil list into an untyped nil.
func orNil(list []string) any {
	if list == nil {
		return nil
	}
	return list
}

// narrowed explains a list that the document requests, nil for any, and the part that the
// layers leave of it.
func (j explainer) narrowed(name string, want []string, k list) Value {
	left, _ := k.allow(want, j.all)
	steps := k.fold(j.all)
	if want != nil {
		steps = append(steps, j.asks("spec."+name, want, left))
	}
	return j.value(name, orNil(left), steps, "spec."+name, "")
}

// explainLists explains the lists; regions is the field with the requested regions.
func (j explainer) explainLists(regions string) []Value {
	one := func(name, says, key string, supports []string, k list) Value {
		field := "spec." + name
		left, _ := k.allow(supports, j.all)
		app := said(ScopeApp, &j.app.Header, supportsPath+key, supports, left)
		return j.value(name, says, append(k.fold(j.all), app, j.asks(field, says, says)), field, "")
	}
	supports := j.app.Spec.Supports
	out := []Value{
		one("operating_mode", j.result.OperatingMode, "operating_modes", supports.Modes(), allowedModes()),
		one("control_plane_scope", j.result.ControlPlaneScope, "control_plane_scopes", supports.Scopes(), allowedScopes()),
	}

	out = append(out, j.narrowed(regions, wantedRegions(j.instance), allowedRegions()))

	for _, r := range j.result.Roles {
		name := "roles." + r.Name + ".sku"
		steps := allowedSKUs().fold(j.all)
		if want := j.instance.Spec.Roles[r.Name].SKU; want != "" {
			steps = append(steps, j.asks("spec."+name, want, []string{want}))
		}
		out = append(out, j.value(name, orNil(r.SKUs), steps, "spec."+name, ""))
	}
	return out
}

// fold returns the steps of the layers that have a maximum.
func (k maximum) fold(layers []layer) []Step {
	steps := []Step{}
	for i, l := range layers {
		if says := k.of(l); says != nil {
			n, _, _ := k.least(layers[:i+1])
			steps = append(steps, Step{l.scope, l.at(k.key), *says, n})
		}
	}
	return steps
}

// limit returns the effective maximum, nil without one.
func (k maximum) limit(layers []layer) any {
	if n, _, ok := k.least(layers); ok {
		return n
	}
	return nil
}

// explainLimits explains the limits on numbers. all are the instances of the project.
func (j explainer) explainLimits(all []*judgement) []Value {
	count, ofApp := 0, 0
	for _, o := range all {
		count = max(count, o.nth)
		if o.app == j.app {
			ofApp = max(ofApp, o.nthOfApp)
		}
	}
	instances := maxInstances()
	return []Value{
		j.limit("max_instances_per_project", instances, j.above, count, "metadata.name"),
		j.limit("max_instances_of_app", instances, j.all[len(j.above):], ofApp, "metadata.name"),
		j.explainGPUs(),
	}
}

// explainQuotas explains the quotas that layers set for the tenant and the project of the unit. Asked is the amount that they
// use with it.
func (j explainer) explainQuotas(parts map[string]*schema.EffectiveProject) (out []Value) {
	for _, q := range quotas() {
		if _, _, isSet := q.least(j.above); !isSet || !q.ofTenant && j.key.Project == "" {
			continue
		}
		total := Used{}
		for name, p := range parts {
			if q.ofTenant || name == j.key.Project {
				total.add(usedByAll(p))
			}
		}
		out = append(out, j.limit(q.key, q.maximum, j.above, q.amount(total), q.field))
	}
	return out
}

func (j explainer) explainGPUs() Value {
	return j.limit("max_gpus_per_instance", maxGPUs(), j.all, j.gpus, "spec.roles")
}

// limit explains a maximum of the layers, with its decisions about field.
func (j explainer) limit(name string, k maximum, layers []layer, asked int, field string) Value {
	v := j.value(name, k.limit(layers), k.fold(layers), field, k.key)
	v.Asked = asked
	v.Decisions = slices.DeleteFunc(v.Decisions, func(d schema.Decision) bool {
		return !slices.ContainsFunc(layers, func(l layer) bool { return l.at(k.key) == d.Source })
	})
	return v
}

// explainSources explains the allowed hosts for the instance's artifacts, and for those
// that its project publishes for the app. Asked has the hosts of its version.
func (j explainer) explainSources() Value {
	k := sourceHosts()
	left, _ := k.allow(nil, j.all)
	v := j.value(k.key, left, k.fold(j.all), "spec.version", k.key)
	hosts := []string{}
	for _, a := range j.version.Spec.Manifest.Artifacts {
		if s := j.source(a.Source); s != nil && s.Spec.Host != "" {
			hosts = append(hosts, s.Spec.Host)
		}
	}
	slices.Sort(hosts)
	v.Asked = slices.Compact(hosts)
	return v
}

func (j explainer) explainState() Value {
	const field = "spec.desired_state"
	was, is := string(j.instance.Spec.DesiredState), string(j.result.DesiredState)
	steps := []Step{j.asks(field, was, was)}
	if n := j.noncompliance; n != nil && n.Source != nil {
		steps = append(steps, j.becoming(is))
	}
	return j.value("desired_state", is, steps, field, "")
}

// becoming returns the step of the layer that sets the fate of a denied instance.
func (j explainer) becoming(value any) Step {
	says, by, _ := strictest(j.all)
	return Step{by.scope, by.at("noncompliant"), says, value}
}

// explainSuspend explains which documents suspend the instance.
func (j explainer) explainSuspend() []Value {
	scopes := map[schema.Kind]Scope{schema.KindTenant: ScopeTenant, schema.KindProject: ScopeProject,
		schema.KindEntitlement: ScopeEntitlement, schema.KindInstance: ScopeInstance}
	var steps []Step
	for _, h := range j.suspension() {
		steps = append(steps, Step{scopes[h.Key.Kind], h.At("suspend"), true, true})
	}
	if steps == nil {
		return nil
	}
	if !j.result.Suspend {
		steps = append(steps, j.becoming(false))
	}
	return []Value{j.value("suspend", j.result.Suspend, steps, "suspend", "")}
}

func (j explainer) explainConfig() []Value {
	out := j.config(object(j.instance.Spec.Config))
	for i, v := range out {
		out[i] = j.value(v.Field, v.Value, v.Steps, "spec."+v.Field, "")
	}
	return out
}

// Text formats a value for people: no limit is "any", a list is its items.
func Text(v any) string {
	switch v := v.(type) {
	case nil:
		return "any"
	case string:
		return v
	case []string:
		if len(v) == 0 {
			return "none"
		}
		return strings.Join(v, ", ")
	}
	data, _ := json.Marshal(v)
	return string(data)
}
