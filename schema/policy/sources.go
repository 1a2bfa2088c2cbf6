package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/schema"
)

// Sources judges the sources that a tenant, or the platform itself, takes bytes
// from.
type Sources struct {
	tenant *schema.TenantEstate // nil: the platform
	above  []layer              // above its projects
}

// SourcesOf is for what t uses, or the platform where t is nil.
func SourcesOf(p *schema.Platform, t *schema.TenantEstate) *Sources {
	layers := platformLayers(p)
	if t != nil {
		layers = tenantLayers(layers, t)
	}
	return &Sources{t, layers}
}

// Allowed says whether bytes may come from source for an app of a project, and
// which layer decides. Project and app may be empty: then the layers above them
// alone are asked. A source of the platform's is for everybody, one of a tenant's for that
// tenant. Sources of type file are on Berth's own host: only the platform has
// such, and no host pattern binds them.
//
// The Decision is of the source, at its host; where it is refused its Verdict is
// Deny.
func (s *Sources) Allowed(project, app string, source *schema.ArtifactSource) (schema.Decision, bool) {
	if s.tenant == nil {
		return sourceAllowed(s.above, "", source)
	}
	layers := s.above
	if in := s.tenant.Projects[project]; in != nil && in.Entitlements[app] != nil {
		layers = entitlementLayers(layers, in.Entitlements[app])
	}
	return sourceAllowed(layers, s.tenant.Name, source)
}

// ReferenceAllowed says whether what a tenant's artifact declares to be in a
// source is within the repositories that the source shares out, and within which.
// What a credential of the platform's opens, or a directory that only Berth reads,
// would else be told to anybody who can declare an artifact: so what is declared
// decides, before anybody looks. Of sources that share out none, one of type file
// is for no tenant's artifact at all, and the credential of another is not shown
// for them (Shared).
func ReferenceAllowed(artifact schema.Key, reference string, source *schema.ArtifactSource) (within string, d schema.Decision, ok bool) {
	d = schema.Decision{Key: artifact, Field: "spec.reference", Verdict: schema.Allow, Rule: "repositories", Source: source.At("spec.repositories"), Before: reference}
	if source.Key.Tenant != "" || len(source.Spec.Repositories) == 0 && source.Spec.Type != schema.SourceFile {
		return "", d, true
	}
	own := make([]string, len(source.Spec.Repositories))
	for i, r := range source.Spec.Repositories {
		own[i] = strings.NewReplacer("{tenant}", artifact.Tenant, "{project}", artifact.Project).Replace(r)
		if below(own[i], reference, source.Spec.Type) {
			return own[i], d, true
		}
	}
	d.Verdict = schema.Deny
	if len(own) == 0 {
		d.Message = fmt.Sprintf("%s shares nothing with projects: the platform names repositories in it for what they publish, or another source is used", source.Key)
		return "", d, false
	}
	d.Message = fmt.Sprintf("%s is not within what %s shares with this project: %s", reference, source.Key, strings.Join(own, ", "))
	return "", d, false
}

// below says whether a reference is in a repository, or is it. A repository of
// files is a directory. At a registry a tag begins with a colon, so that none makes
// another repository; elsewhere a colon is part of a name.
func below(repository, reference, typ string) bool {
	rest, ok := strings.CutPrefix(reference, repository)
	switch {
	case !ok:
		return false
	case rest == "":
		return typ != schema.SourceFile
	}
	return rest[0] == '/' || rest[0] == ':' && typ == schema.SourceOCI
}

// Shared says whether the credential of a source may be shown for what a
// tenant's artifact declares to be there: a tenant's own may, and one of the
// platform's where the source says what is shared by it.
func Shared(source *schema.ArtifactSource) bool {
	return source.Spec.Credential == "" || source.Key.Tenant != "" || len(source.Spec.Repositories) > 0
}

func sourceAllowed(layers []layer, tenant string, s *schema.ArtifactSource) (schema.Decision, bool) {
	k := sourceHosts()
	d := schema.Decision{Key: s.Key, Field: "spec.host", Verdict: schema.Deny, Rule: k.key, At: s.At("spec.host"), Before: s.Spec.Host}
	own := s.Key.Tenant == ""
	switch {
	case !own && s.Key.Tenant != tenant:
		d.Field, d.Source, d.At = "metadata.name", s.At("metadata.name"), s.At("metadata.name")
		d.Message = fmt.Sprintf("%s is for its own tenant alone", s.Key)
		return d, false
	case s.Spec.Type == schema.SourceFile:
		d.Field, d.Source, d.At, d.Before = "spec.type", s.At("spec.type"), s.At("spec.type"), s.Spec.Directory
		if !own {
			d.Message = "a source of type file is on Berth's own host: only the platform has such"
			return d, false
		}
		d.Verdict, d.Message = schema.Allow, "a directory of the platform's"
		return d, true
	}
	if l, _, refused := k.refuses(s.Spec.Host, layers); refused {
		d.Source = l.at(k.key)
		d.Message = fmt.Sprintf("%s is not allowed, %s", s.Spec.Host, only(k.of(l.Overlay)))
		return d, false
	}
	// The platform's layers always have a list; the narrowest that has one is
	// the last word.
	for _, l := range layers {
		if k.of(l.Overlay) != nil {
			d.Source = l.at(k.key)
		}
	}
	d.Verdict, d.After = schema.Allow, s.Spec.Host
	d.Message = s.Spec.Host + " is allowed"
	return d, true
}

// used is the refusal of a source as that of what uses it at a field.
func used(refused schema.Decision, by *schema.Header, field, format string, args ...any) schema.Decision {
	source := refused.Key
	refused.Key, refused.Field, refused.At = by.Key, field, by.At(field)
	refused.Message = fmt.Sprintf(format, args...) + fmt.Sprintf(" comes from %s: %s", source, refused.Message)
	return refused
}

// EvaluatePlatform judges the platform's sources, and what its versions are
// made from, by the platform's own policies.
func EvaluatePlatform(p *schema.Platform) (ds []schema.Decision) {
	layers := platformLayers(p)
	refused := map[string]schema.Decision{}
	for _, name := range slices.Sorted(maps.Keys(p.ArtifactSources)) {
		if d, ok := sourceAllowed(layers, "", p.ArtifactSources[name]); !ok {
			refused[name] = d
			ds = append(ds, d)
		}
	}
	for _, versions := range p.Versions {
		for _, v := range versions {
			for name, a := range v.Spec.Manifest.Artifacts {
				if d, no := refused[a.Source]; no {
					ds = append(ds, used(d, &v.Header, "spec.manifest.artifacts."+name+".source", "the artifact %s", name))
				}
			}
		}
	}
	sortDecisions(ds)
	return ds
}

// tenantSources judges a tenant's sources by the layers above its projects.
func tenantSources(t *schema.TenantEstate, above []layer) (ds []schema.Decision) {
	for _, s := range t.ArtifactSources {
		if d, ok := sourceAllowed(above, t.Name, s); !ok {
			ds = append(ds, d)
		}
	}
	sortDecisions(ds)
	return ds
}

// artifacts judges the sources of the artifacts that a project publishes, by the
// layers above it and the entitlement.
func (r *rules) artifacts(t *schema.TenantEstate, project *schema.ProjectEstate, above []layer) (ds []schema.Decision) {
	for _, a := range project.Artifacts {
		source := t.ArtifactSources[a.Spec.Source]
		if source == nil {
			source = r.sources[a.Spec.Source]
		}
		if source == nil {
			continue // the reader lets none of these through
		}
		layers := above
		if ent := project.Entitlements[a.Spec.App]; ent != nil {
			layers = entitlementLayers(above, ent)
		}
		if d, ok := sourceAllowed(layers, t.Name, source); !ok {
			ds = append(ds, used(d, &a.Header, "spec.source", "it"))
		}
		if _, d, ok := ReferenceAllowed(a.Key, a.Spec.Reference, source); !ok {
			d.At = a.At(d.Field)
			ds = append(ds, d)
		}
	}
	return ds
}

// artifacts judges what the instance's version is made from by the layers of
// the instance: what its tenant may not fetch is not run for it.
func (j *judgement) artifacts() {
	all := j.version.Spec.Manifest.Artifacts
	for _, name := range slices.Sorted(maps.Keys(all)) {
		source := j.sources[all[name].Source]
		if source == nil {
			continue // the reader lets none of these through
		}
		if d, ok := sourceAllowed(j.layers, j.key.Tenant, source); !ok {
			j.decisions = append(j.decisions, used(d, &j.instance.Header, "spec.version", "the artifact %s of %s", name, j.version.Key))
		}
	}
}
