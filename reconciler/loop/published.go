package loop

import (
	"encoding/json"
	"fmt"
	"time"

	"berth/runtimes"
	"berth/schema"
	"berth/schema/policy"
)

// published is a declared resource with bytes in an external source: an Artifact of a
// project, or an AppVersion that is made from artifacts.
type published struct {
	head   *schema.Header
	status string                 // as declared; "" is a publish intent
	bytes  map[string]bytesStatus // by name; an Artifact's has the name ""
}

// source returns the source of the bytes of b, or the reason why they may not be read
// there. A source together with a reason is read without its credential, so bytes may
// be missing for that reason.
func (p *published) source(d *schema.Desired, rules *policy.Sources, b bytesStatus) (source *schema.ArtifactSource, why string) {
	k := p.head.Key
	if t := d.Tenants[k.Tenant]; t != nil {
		source = t.ArtifactSources[b.Source]
	}
	if source == nil {
		source = d.Platform.ArtifactSources[b.Source]
	}
	if source == nil {
		return nil, "there is no source " + b.Source
	}
	if decision, ok := rules.Allowed(k.Project, b.AppSlug, source); !ok {
		return nil, decision.Message
	}
	only := *source
	only.Spec.Repositories = nil
	if k.Tenant == "" { // the platform's own versions
		return &only, ""
	}
	within, decision, ok := policy.ReferenceAllowed(k, b.Reference, source)
	if !ok {
		return nil, decision.Message
	}
	if within != "" {
		only.Spec.Repositories = []string{within}
	}
	if !policy.Shared(source) {
		only.Spec.Credential = ""
		return &only, fmt.Sprintf("the credential of %s is not shown for what projects publish, as the source names no repositories for "+
			"them", source.Key)
	}
	return &only, ""
}

// fingerprint is equal for equal verifications: of the same bytes, at the same
// source, for the same status. rules are those of the owner.
func (p *published) fingerprint(d *schema.Desired, rules *policy.Sources) string {
	type reference struct {
		bytesStatus
		Source *schema.ArtifactSourceSpec
		Why    string
	}
	all := map[string]reference{}
	for name, b := range p.bytes {
		r := reference{bytesStatus: b}
		var source *schema.ArtifactSource
		if source, r.Why = p.source(d, rules, b); source != nil {
			r.Source = &source.Spec
		}
		all[name] = r
	}
	data, err := json.Marshal(all)
	if err != nil {
		panic(err) // strings only
	}
	return p.status + " " + string(data)
}

// publishedBy returns the published resources in force of an owner: a tenant, or "",
// the platform.
func publishedBy(d *schema.Desired, owner string) map[schema.Key]*published {
	out := map[schema.Key]*published{}
	of := d.Platform.Versions
	if owner != "" {
		of = nil
	}
	if t := d.Tenants[owner]; t != nil {
		of = t.Versions
		for _, project := range t.Projects {
			for _, a := range project.Artifacts {
				out[a.Key] = publishedArtifact(a)
			}
		}
	}
	for _, versions := range of {
		for _, v := range versions {
			if p := publishedVersion(v); p != nil {
				out[v.Key] = p
			}
		}
	}
	return out
}

// publishedResource returns one published resource in force, or nil.
func publishedResource(d *schema.Desired, key schema.Key) *published {
	switch key.Kind {
	case schema.KindAppVersion:
		if v, ok := d.Document(key).(*schema.AppVersion); ok {
			return publishedVersion(v)
		}
	case schema.KindArtifact:
		if t := d.Tenants[key.Tenant]; t != nil && t.Projects[key.Project] != nil {
			if a := t.Projects[key.Project].Artifacts[key.Name]; a != nil {
				return publishedArtifact(a)
			}
		}
	}
	return nil
}

func publishedArtifact(a *schema.Artifact) *published {
	return &published{head: &a.Header, status: string(a.Spec.Status), bytes: map[string]bytesStatus{
		"": {AppSlug: a.Spec.App, Source: a.Spec.Source, Reference: a.Spec.Reference, MediaType: a.Spec.MediaType, Digest: a.Spec.Digest},
	}}
}

// publishedVersion returns nil for a version that names no artifacts.
func publishedVersion(v *schema.AppVersion) *published {
	if len(v.Spec.Manifest.Artifacts) == 0 {
		return nil
	}
	p := &published{head: &v.Header, status: string(v.Spec.Status), bytes: map[string]bytesStatus{}}
	for name, m := range v.Spec.Manifest.Artifacts {
		p.bytes[name] = bytesStatus{Source: m.Source, Reference: m.Reference, MediaType: m.MediaType, Digest: m.Digest}
	}
	return p
}

// bytesStatus is the declared and observed status of the bytes of one reference. Its
// names are those of the artifact events, which are made from it.
type bytesStatus struct {
	AppSlug   string               `json:"app_slug,omitempty"` // of an Artifact
	Source    string               `json:"source"`
	Reference string               `json:"reference"`
	MediaType string               `json:"media_type"`
	Digest    string               `json:"digest"` // as declared; "" for a publish intent
	State     string               `json:"state,omitempty"`
	Reason    runtimes.SightReason `json:"reason,omitempty"`
	Message   string               `json:"message,omitempty"`
	Found     string               `json:"found_digest,omitempty"`
	FoundType string               `json:"found_media_type,omitempty"`
	Size      int64                `json:"size,omitempty"`
	Checked   time.Time            `json:"checked,omitzero"` // when this was found first
}

// declared returns b without observed fields.
func (b bytesStatus) declared() bytesStatus {
	return bytesStatus{AppSlug: b.AppSlug, Source: b.Source, Reference: b.Reference, MediaType: b.MediaType, Digest: b.Digest}
}
