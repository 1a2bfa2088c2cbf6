package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/schema"
)

// Sources decides which sources a tenant, or the platform itself, may use for artifacts.
type Sources struct {
	platform *schema.Platform
	tenant   *schema.TenantEstate // nil: the platform
	above    []layer              // layers above its projects
}

// SourcesOf returns the Sources of t, or of the platform if t is nil.
func SourcesOf(p *schema.Platform, t *schema.TenantEstate) *Sources {
	layers := platformLayers(p)
	if t != nil {
		layers = tenantLayers(layers, t, regionsBySite(p))
	}
	return &Sources{p, t, layers}
}

// Allowed reports whether an artifact of source may be used for an app of a project, and
// which layer decides. If project and app are empty, only the layers above them decide.
// A source of the platform serves every tenant, and one of a tenant serves only that
// tenant. Sources of type file are on Berth's own host: only the platform has them, and
// no host pattern applies.
//
// The Decision is about the source, at its host. A denial has the Verdict Deny.
func (s *Sources) Allowed(project, app string, source *schema.ArtifactSource) (schema.Decision, bool) {
	if s.tenant == nil {
		return sourceAllowed(s.above, "", source)
	}
	layers := s.above
	if in := s.tenant.Projects[project]; in != nil && in.Entitlements[app] != nil {
		layers = entitlementLayers(admissionLayers(s.platform, s.tenant, app, layers), in.Entitlements[app])
	}
	return sourceAllowed(layers, s.tenant.Name, source)
}

// ReferenceAllowed reports whether the reference of a tenant's artifact is within the
// repositories that the source shares, and within which. Otherwise any user with
// permission to declare an artifact could read content behind a credential of the
// platform, or in a directory that only Berth reads. The declaration therefore decides
// before Berth contacts the source. If a source shares no repositories, type file serves
// no tenant, and other types are read without their credential (Shared).
func ReferenceAllowed(artifact schema.Key, reference string, source *schema.ArtifactSource) (within string, d schema.Decision, ok bool) {
	d = schema.Decision{Key: artifact, Field: "spec.reference", Verdict: schema.Allow, Rule: "repositories",
		Source: source.At("spec.repositories"), Before: reference}
	if source.Key.Tenant != "" || len(source.Spec.Repositories) == 0 && source.Spec.Type != schema.SourceFile {
		return "", d, true
	}
	var own []string
	for _, r := range source.Spec.Repositories {
		if artifact.Project == "" && strings.Contains(r, "{project}") {
			continue // a version of a tenant's own app is of no project
		}
		r = strings.NewReplacer("{tenant}", artifact.Tenant, "{project}", artifact.Project).Replace(r)
		if below(r, reference, source.Spec.Type) {
			return r, d, true
		}
		own = append(own, r)
	}
	d.Verdict = schema.Deny
	who := "project"
	if artifact.Project == "" {
		who = "tenant"
	}
	if len(own) == 0 {
		d.Message = fmt.Sprintf("%s shares nothing with %ss: the platform names repositories in it for what they publish, or another "+
			"source is used", source.Key, who)
		return "", d, false
	}
	d.Message = fmt.Sprintf("%s is not within what %s shares with this %s: %s", reference, source.Key, who, strings.Join(own, ", "))
	return "", d, false
}

// below reports whether a reference is in a repository, or is it. A repository of
// type file is a directory. At a registry a tag begins with a colon, so it cannot
// name another repository; elsewhere a colon is part of a name.
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

// Shared reports whether the credential of a source may be used for a tenant's artifact.
// This holds for a tenant's own source, and for a platform source that lists its shared
// repositories.
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
	// The platform's layers always have a list. The narrowest layer with a list
	// decides.
	for _, l := range layers {
		if k.of(l.Overlay) != nil {
			d.Source = l.at(k.key)
		}
	}
	d.Verdict, d.After = schema.Allow, s.Spec.Host
	d.Message = s.Spec.Host + " is allowed"
	return d, true
}

// used turns the denial of a source into a denial of the document that uses it.
func used(refused schema.Decision, by *schema.Header, field, format string, args ...any) schema.Decision {
	source := refused.Key
	refused.Key, refused.Field, refused.At = by.Key, field, by.At(field)
	refused.Message = fmt.Sprintf(format, args...) + fmt.Sprintf(" comes from %s: %s", source, refused.Message)
	return refused
}

// evaluatePlatform evaluates the platform's sources, and the artifacts of its
// versions, by the platform's own policies.
func evaluatePlatform(p *schema.Platform) (ds []schema.Decision) {
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

// tenantSources evaluates a tenant's sources, and the artifacts of the versions of its own apps, by the
// layers above its projects. A proposal needs no admission.
func tenantSources(p *schema.Platform, t *schema.TenantEstate, above []layer) (ds []schema.Decision) {
	for _, s := range t.ArtifactSources {
		if d, ok := sourceAllowed(above, t.Name, s); !ok {
			ds = append(ds, d)
		}
	}
	for slug, versions := range t.Versions {
		source := sourcesFor(p, t, t.Apps[slug])
		for _, v := range versions {
			for name, a := range v.Spec.Manifest.Artifacts {
				if s := source(a.Source); s != nil {
					ds = append(ds, usable(above, t.Name, v, name, s, &v.Header, "spec.manifest.artifacts."+name+".source")...)
				}
			}
		}
	}
	sortDecisions(ds)
	return ds
}

// sourcesFor returns a function that finds the source that a version of an app names; nil: there is
// none. For a tenant's own app, a source of the tenant has priority over one of the platform.
func sourcesFor(p *schema.Platform, t *schema.TenantEstate, app *schema.App) func(name string) *schema.ArtifactSource {
	own := t != nil && app != nil && app.Key.Tenant != ""
	return func(name string) *schema.ArtifactSource {
		if own && t.ArtifactSources[name] != nil {
			return t.ArtifactSources[name]
		}
		return p.ArtifactSources[name]
	}
}

// usable denies a document that uses an artifact of a version from a source that the layers do not
// allow. A version of a tenant's own app reads only what the source shares with the tenant, as an
// Artifact of its projects does.
func usable(
	layers []layer, tenant string, v *schema.AppVersion, artifact string, source *schema.ArtifactSource, by *schema.Header, field string,
) (ds []schema.Decision) {
	if d, ok := sourceAllowed(layers, tenant, source); !ok {
		ds = append(ds, used(d, by, field, "the artifact %s of %s", artifact, v.Key))
	}
	if v.Key.Tenant == "" {
		return ds
	}
	if _, d, ok := ReferenceAllowed(v.Key, v.Spec.Manifest.Artifacts[artifact].Reference, source); !ok {
		d.Key, d.Field, d.At = by.Key, field, by.At(field)
		ds = append(ds, d)
	}
	return ds
}

// artifacts evaluates the sources of the artifacts that a project publishes, by the
// layers above it and the entitlement.
func (r *rules) artifacts(t *schema.TenantEstate, project *schema.ProjectEstate, above []layer) (ds []schema.Decision) {
	for _, a := range project.Artifacts {
		source := t.ArtifactSources[a.Spec.Source]
		if source == nil {
			source = r.catalog.ArtifactSources[a.Spec.Source]
		}
		if source == nil {
			continue // the reader refuses these
		}
		layers := above
		if ent := project.Entitlements[a.Spec.App]; ent != nil {
			layers = entitlementLayers(admissionLayers(r.catalog, t, a.Spec.App, above), ent)
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

// artifacts evaluates the sources of the instance's version by the layers of the
// instance. An instance does not run an artifact that its tenant may not fetch.
func (j *judgement) artifacts() {
	all := j.version.Spec.Manifest.Artifacts
	for _, name := range slices.Sorted(maps.Keys(all)) {
		source := j.source(all[name].Source)
		if source == nil {
			continue // the reader refuses these
		}
		j.decisions = append(j.decisions, usable(j.all, j.key.Tenant, j.version, name, source, &j.instance.Header, "spec.version")...)
	}
}
