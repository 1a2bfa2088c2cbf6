package load

import (
	"fmt"
	"regexp"
	"strings"

	"berth/schema"
)

// place is where documents of a kind stand. Segments in braces are names and
// become parts of the document's Key; {name} is its own. A later kind is one
// more line here, one CUE definition, one line in blank, and a map in Desired.
type place struct {
	pattern string
	kind    schema.Kind
}

func places() []place {
	return []place{
		{"platform/catalog/{name}/app.yaml", schema.KindApp},
		{"platform/catalog/{parent}/{name}.yaml", schema.KindAppVersion},
		{"platform/nodes/{name}.yaml", schema.KindNode},
		{"platform/policy/{name}.yaml", schema.KindPolicy},
		{"platform/roles/{name}.yaml", schema.KindRoleBinding},
		{"platform/sites/{name}.yaml", schema.KindSite},
		{"platform/artifact-sources/{name}.yaml", schema.KindArtifactSource},
		{"platform/queues/{name}.yaml", schema.KindQueueMap},
		{"platform/hooks/{name}.yaml", schema.KindHookRule},
		{"platform/pause.yaml", schema.KindPause},
		{"platform/shared-runtimes/{name}/runtime.yaml", schema.KindSharedRuntime},
		{"platform/shared-runtimes/{parent}/attachments/{name}.yaml", schema.KindAttachment},
		{"platform/shared-runtimes/{parent}/operations/{name}.yaml", schema.KindMemberOperation},
		{"tenants/{name}/tenant.yaml", schema.KindTenant},
		{"tenants/{tenant}/policy.yaml", schema.KindPolicy},
		{"tenants/{tenant}/roles.yaml", schema.KindRoleBinding},
		{"tenants/{tenant}/service-accounts/{name}.yaml", schema.KindServiceAccount},
		{"tenants/{tenant}/artifact-sources/{name}.yaml", schema.KindArtifactSource},
		{"tenants/{tenant}/shared-runtimes/{name}/runtime.yaml", schema.KindSharedRuntime},
		{"tenants/{tenant}/shared-runtimes/{parent}/attachments/{name}.yaml", schema.KindAttachment},
		{"tenants/{tenant}/shared-runtimes/{parent}/operations/{name}.yaml", schema.KindMemberOperation},
		{"tenants/{tenant}/projects/{name}/project.yaml", schema.KindProject},
		{"tenants/{tenant}/projects/{project}/roles.yaml", schema.KindRoleBinding},
		{"tenants/{tenant}/projects/{project}/entitlements/{name}.yaml", schema.KindEntitlement},
		{"tenants/{tenant}/projects/{project}/instances/{name}.yaml", schema.KindInstance},
		{"tenants/{tenant}/projects/{project}/service-accounts/{name}.yaml", schema.KindServiceAccount},
		{"tenants/{tenant}/projects/{project}/artifacts/{name}.yaml", schema.KindArtifact},
		{"tenants/{tenant}/projects/{project}/contributions/{name}.yaml", schema.KindContribution},
		{"tenants/{tenant}/projects/{project}/operations/{name}.yaml", schema.KindMemberOperation},
	}
}

// kindPlaces is where documents of kind stand, for messages.
func kindPlaces(kind schema.Kind) []string {
	var ps []string
	for _, p := range places() {
		if p.kind == kind {
			ps = append(ps, strings.NewReplacer("{", "<", "}", ">").Replace(p.pattern))
		}
	}
	return ps
}

// kinds are the names of all kinds, sorted.
func kinds() []string {
	var ks []string
	for _, k := range schema.Kinds() {
		ks = append(ks, string(k))
	}
	return ks
}

// maxName is the longest identifier.
const maxName = 40

// maxPlace is more bytes than the path of any document has.
const maxPlace = 255

var nameForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

func isName(s string) bool { return len(s) <= maxName && nameForm.MatchString(s) }

// locate is the Key of the document that stands at path. The finding is nil if
// it may stand there; ignore says that the file is no business of Berth's.
func locate(path string) (key schema.Key, finding *schema.Diagnostic, ignore bool) {
	refuse := func(code, format string, args ...any) (schema.Key, *schema.Diagnostic, bool) {
		return schema.Key{}, &schema.Diagnostic{
			Severity: schema.SeverityError, Code: code, Message: fmt.Sprintf(format, args...),
			File: path, Line: 1, Column: 1,
		}, false
	}
	if unsafe := strings.ContainsFunc(path, func(r rune) bool { return r < 0x20 || r == 0x7f || unsafeRune(r) || r == 0xfffd }); unsafe {
		return refuse("path.name", "the file's name holds control or invisible characters; rename it")
	}
	segments := strings.Split(path, "/")
	base := segments[len(segments)-1]
	if base == "README.md" || base == ".gitkeep" {
		return schema.Key{}, nil, true
	}
	if len(path) > maxPlace {
		return refuse("path.name", "the path is longer than %d bytes, and none of a document is: use shorter names", maxPlace)
	}
	if key, bad, ok := match(segments); ok {
		if bad != "" {
			return refuse("path.name", "%s is no identifier: write lower-case letters, digits and inner dashes, at most %d characters", bad, maxName)
		}
		return key, nil, false
	}
	if key, _, ok := match(strings.Split(strings.ToLower(path), "/")); ok {
		want, _ := key.Path()
		return refuse("path.case", "names in an estate are lower case; rename the file to %s", want)
	}
	if stem, found := cutExtension(path); found {
		if _, _, ok := match(strings.Split(stem+".yaml", "/")); ok {
			return refuse("path.extension", "documents end in .yaml; rename the file to %s.yaml", stem)
		}
	}
	if !strings.HasSuffix(base, ".yaml") {
		return refuse("path.stray", "this is no document of an estate; only .yaml documents and README.md stand below platform/ and tenants/")
	}
	return refuse("path.misplaced", "no kind of document stands here")
}

func cutExtension(path string) (string, bool) {
	for _, ext := range []string{".yml", ".json", ".yaml.txt"} {
		if stem, ok := strings.CutSuffix(strings.ToLower(path), ext); ok {
			return stem, true
		}
	}
	return path, false
}

// KeyAt is the key of the document that stands at a path of an estate; false if
// none may stand there.
func KeyAt(path string) (schema.Key, bool) {
	key, finding, ignored := locate(path)
	return key, finding == nil && !ignored
}

// match finds the place segments fit. bad is the first name that is none, quoted.
func match(segments []string) (key schema.Key, bad string, ok bool) {
places:
	for _, p := range places() {
		if strings.Count(p.pattern, "/")+1 != len(segments) {
			continue
		}
		want := strings.Split(p.pattern, "/")
		key, bad = schema.Key{Kind: p.kind}, ""
		// What stands at a fixed name is called after the file, unless the
		// pattern names it.
		key.Name = strings.TrimSuffix(segments[len(segments)-1], ".yaml")
		for i, w := range want {
			s := segments[i]
			if w[0] != '{' {
				if w != s {
					continue places
				}
				continue
			}
			w, suffix, _ := strings.Cut(w, "}")
			s, found := strings.CutSuffix(s, suffix)
			if !found {
				continue places
			}
			if bad == "" && !isName(s) {
				bad = short(s)
			}
			switch w[1:] {
			case "name":
				key.Name = s
			case "parent":
				key.Parent = s
			case "tenant":
				key.Tenant = s
			case "project":
				key.Project = s
			}
		}
		return key, bad, true
	}
	return schema.Key{}, "", false
}
