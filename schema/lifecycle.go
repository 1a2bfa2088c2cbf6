package schema

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// Codes of findings about changes of published documents.
const (
	CodeArtifactStatus   = "lifecycle.status"    // an artifact that takes a step it may not
	CodeArtifactDigest   = "lifecycle.digest"    // a registered artifact with other bytes
	CodeArtifactFixed    = "lifecycle.fixed"     // a registered artifact with another app, source, reference or media type
	CodeArtifactUnseen   = "lifecycle.unseen"    // a promotion that waits for bytes that the last check did not find
	CodeArtifactInUse    = "lifecycle.in-use"    // an active version is made from what is retired or deprecated
	CodeVersionPublished = "lifecycle.published" // a published version with other contents
	CodeOperationChanged = "lifecycle.operation" // an operation that becomes another one
)

// next are the states an artifact may go to: intent, registered, promoted,
// deprecated, retired, in that order (requirement A6). A deprecated one may be
// promoted again; retired is the end.
func (s ArtifactStatus) next() []ArtifactStatus {
	switch s {
	case "":
		return []ArtifactStatus{ArtifactRegistered}
	case ArtifactRegistered:
		return []ArtifactStatus{ArtifactPromoted, ArtifactDeprecated, ArtifactRetired}
	case ArtifactPromoted:
		return []ArtifactStatus{ArtifactDeprecated, ArtifactRetired}
	case ArtifactDeprecated:
		return []ArtifactStatus{ArtifactPromoted, ArtifactRetired}
	}
	return nil
}

func (s ArtifactStatus) word() string {
	if s == "" {
		return "a publish intent"
	}
	return string(s)
}

// ArtifactTransition says why an artifact may not go from one state to another;
// nil: it may.
func ArtifactTransition(from, to ArtifactStatus) error {
	if from == to || slices.Contains(from.next(), to) {
		return nil
	}
	switch {
	case to == "":
		return fmt.Errorf("it is %s already and cannot become a publish intent again: retire it, or publish another one under another name",
			from.word())
	case from == "":
		return fmt.Errorf("it is a publish intent: register it by its digest first, with status: registered, and let it be %s in a "+
			"change of its own", to)
	case from == ArtifactRetired:
		return fmt.Errorf("it is retired, which is the end: publish another one under another name")
	case from == ArtifactDeprecated:
		return fmt.Errorf("it is deprecated and cannot become %s again: promote or retire it instead", to)
	}
	return fmt.Errorf("it is %s and cannot become %s again: deprecate or retire it instead", from.word(), to)
}

// Lifecycle finds changes of published documents that are not allowed (requirements
// A2, A6). Both sides are in force, before and after the change. If nothing was in
// force, the estate is taken over and its artifacts begin in any state. Pure.
//
// An AppVersion is published by being there. Its status goes freely between
// active, deprecated and disabled, as a status says nothing about what runs: a
// deprecated version warns, a disabled one takes no new instances, and retired
// is one whose document is gone, which is possible when nothing uses it. What it
// is made of, though, is published once.
func Lifecycle(before, after *Desired) []Diagnostic {
	var out []Diagnostic
	adopted := before.empty()
	for tenant, t := range Sorted(after.Tenants) {
		if before.Tenants[tenant] == t && before.Platform == after.Platform {
			continue
		}
		before := ArtifactsBefore(before.Tenants[tenant], t)
		for _, p := range Sorted(t.Projects) {
			for _, a := range Sorted(p.Artifacts) {
				was := before(a)
				if was != a && !adopted {
					out = append(out, artifactChange(was, a)...)
				}
				out = append(out, inUse(after.Platform, t, was, a)...)
			}
		}
	}
	if before.Platform != nil {
		out = append(out, versionChanges(before, after)...)
		out = append(out, operationChanges(before, after)...)
	}
	return out
}

// operationChanges finds operations that would become others: each is done once, and one that is
// done stays done, whatever its document says then.
func operationChanges(before, after *Desired) (out []Diagnostic) {
	for was, s := range changedRuntimes(before, after) {
		out = append(out, otherOperations(was.Operations, s.Operations)...)
	}
	for was, p := range changedProjects(before, after) {
		out = append(out, otherOperations(was.Operations, p.Operations)...)
	}
	return out
}

// otherOperations is operationChanges for the operations of one place.
func otherOperations(was, is map[string]*MemberOperation) (out []Diagnostic) {
	for old, now := range Changed(was, is) {
		if old.Key != now.Key || old.UID != now.UID {
			continue // a new one
		}
		a, b := old.Spec, now.Spec
		if a.Operation != b.Operation || a.Instance != b.Instance || a.Member != b.Member || !maps.Equal(a.Labels, b.Labels) {
			out = append(out, now.finding(SeverityError, CodeOperationChanged, "spec",
				"it asks for %s of %s already, and an operation is carried out once: delete this file and write another",
				a.Operation, cmp.Or(a.Member, "the unit")))
		} else if !reflect.DeepEqual(a, b) {
			out = append(out, now.finding(SeverityWarning, CodeOperationChanged, "spec",
				"this has an effect only while the operation waits: one that is done is not carried out again. To repeat it, delete "+
					"this file and write another"))
		}
	}
	return out
}

// ArtifactsBefore returns a function that finds the earlier document of an artifact of
// a tenant: the one with its uid anywhere in the tenant, else the one with its name,
// unless that document continues under another name. It returns nil for a new
// artifact. Uids of different tenants are unrelated. Both tenants may be nil.
func ArtifactsBefore(before, after *TenantEstate) func(*Artifact) *Artifact {
	was, is := before.artifactsByUID(), after.artifactsByUID()
	return func(a *Artifact) *Artifact {
		if old := was[a.UID]; old != nil {
			return old
		}
		old := before.artifact(a.Key)
		if old != nil && is[old.UID] != nil {
			return nil
		}
		return old
	}
}

// artifactsByUID are those of t's artifacts that have one.
func (t *TenantEstate) artifactsByUID() map[string]*Artifact {
	out := map[string]*Artifact{}
	if t == nil {
		return out
	}
	for _, p := range t.Projects {
		for _, a := range p.Artifacts {
			if a.UID != "" {
				out[a.UID] = a
			}
		}
	}
	return out
}

func (t *TenantEstate) artifact(key Key) *Artifact {
	if t == nil || t.Projects[key.Project] == nil {
		return nil
	}
	return t.Projects[key.Project].Artifacts[key.Name]
}

// empty says whether d declares nothing.
func (d *Desired) empty() bool { return len(d.Tenants) == 0 && d.Platform.isEmpty() }

// artifactChange judges the step of an artifact from was, nil if it is new. One
// that was taken away and comes again under its name is new: it may have other
// bytes, and begins as they were never seen.
func artifactChange(was, now *Artifact) (out []Diagnostic) {
	if was == nil {
		if s := now.Spec.Status; s != "" && s != ArtifactRegistered {
			out = append(out, now.finding(SeverityError, CodeArtifactStatus, "spec.status",
				"it is new here, or comes again after it was taken away: register it first, with status: registered, so that "+
					"its bytes are read, and let it be %s in a change of its own", s))
		}
		return out
	}
	if err := ArtifactTransition(was.Spec.Status, now.Spec.Status); err != nil {
		out = append(out, now.finding(SeverityError, CodeArtifactStatus, "spec.status", "%s", err))
	}
	if was.Spec.Status == "" {
		return out
	}
	if now.Spec.Digest != "" && was.Spec.Digest != now.Spec.Digest {
		out = append(out, now.finding(SeverityError, CodeArtifactDigest, "spec.digest",
			"it is registered as %s, and what has that name stays that: publish other bytes under another name",
			was.Spec.Digest))
	}
	for _, f := range []struct{ name, was, is string }{
		{"app", was.Spec.App, now.Spec.App},
		{"source", was.Spec.Source, now.Spec.Source},
		{"reference", was.Spec.Reference, now.Spec.Reference},
		{"media_type", was.Spec.MediaType, now.Spec.MediaType},
	} {
		if f.was != f.is {
			out = append(out, now.finding(SeverityError, CodeArtifactFixed, "spec."+f.name,
				"it is %s with %s %s, which does not change any more: publish another one under another name",
				was.Spec.Status.word(), f.name, f.was))
		}
	}
	return out
}

// inUse finds active versions that are made from an artifact that is retired or
// deprecated: the same bytes from the same source. The versions are those of the app as
// the tenant names it; one of the platform is made from the platform's sources. The
// finding is about the artifact: a project's statement about bytes stops the project from
// retiring them, and does not bind the platform's catalog.
func inUse(p *Platform, t *TenantEstate, was, now *Artifact) (out []Diagnostic) {
	retired := now.Spec.Status == ArtifactRetired
	if !retired && now.Spec.Status != ArtifactDeprecated || t.ArtifactSources[now.Spec.Source] != nil && t.Apps[now.Spec.App] == nil {
		return nil
	}
	severity, advice := SeverityWarning, "move it to another one"
	if retired && was != nil && was.Spec.Status != ArtifactRetired {
		severity, advice = SeverityError, "deprecate it instead, until no active version is"
	}
	for _, v := range Sorted(p.VersionsFor(t, now.Spec.App)) {
		if v.Spec.Status != StatusActive {
			continue
		}
		for name, m := range Sorted(v.Spec.Manifest.Artifacts) {
			if m.Source != now.Spec.Source || m.Digest != now.Spec.Digest {
				continue
			}
			at := v.At("spec.manifest.artifacts." + name)
			out = append(out, now.finding(severity, CodeArtifactInUse, "spec.status",
				"%s is active and is made from what is %s here (%s:%d): %s", v.Key, now.Spec.Status, at.File, at.Line, advice))
		}
	}
	return out
}

// versionChanges finds published versions that would be made of something else.
func versionChanges(before, after *Desired) (out []Diagnostic) {
	var used map[Key]Key // looked up once something changed
	for _, now := range after.versions() {
		was, _ := before.Document(now.Key).(*AppVersion)
		if was == nil || was == now {
			continue
		}
		field := contents(&was.Spec, &now.Spec)
		if field == "" {
			continue
		}
		if used == nil {
			used = users(before, after)
		}
		advice := "publish it as another version, and let instances name that one"
		if by, ok := used[now.Key]; ok {
			out = append(out, now.finding(SeverityError, CodeVersionPublished, field,
				"%s runs this version, and a published one stays what it is: %s", by, advice))
			continue
		}
		out = append(out, now.finding(SeverityWarning, CodeVersionPublished, field,
			"a published version becomes something else, which nothing runs here: rather %s", advice))
	}
	return out
}

// contents is the first field in which two versions differ in what instances
// are made of, or "".
func contents(a, b *AppVersionSpec) string {
	for _, f := range []struct {
		path string
		a, b any
	}{
		{"spec.runtime_backend", a.RuntimeBackend, b.RuntimeBackend},
		{"spec.version", a.Version, b.Version},
		{"spec.manifest.roles", a.Manifest.Roles, b.Manifest.Roles},
		{"spec.manifest.parameters", a.Manifest.Parameters, b.Manifest.Parameters},
		{"spec.manifest.artifacts", a.Manifest.Artifacts, b.Manifest.Artifacts},
	} {
		x, errX := json.Marshal(f.a)
		y, errY := json.Marshal(f.b)
		if errX != nil || errY != nil || !bytes.Equal(x, y) {
			return f.path
		}
	}
	return ""
}

// users are the versions that something runs before and after, each with the
// first that does.
func users(before, after *Desired) map[Key]Key {
	out := map[Key]Key{}
	for by, runs := range after.units() {
		v := after.Version(by.Tenant, runs.app, runs.version)
		if v == nil || before.selectedBy(by) != runs {
			continue
		}
		if first, ok := out[v.Key]; !ok || by.Compare(first) < 0 {
			out[v.Key] = by
		}
	}
	return out
}
