package load

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"berth/schema"
	"berth/schema/authority"
	"berth/schema/event"
)

// Rules of shared, published and operated kinds that a definition cannot express.

// sharedRuntimeRules fills in values from the path, and refuses values that contradict
// it.
func sharedRuntimeRules(d *schema.SharedRuntime, t *tree) []problem {
	raw, ps := open(t, "config")
	d.Spec.Config = raw
	scope, place := "tenant", "in a tenant"
	if d.Key.Tenant == "" {
		scope, place = "platform", "at the platform"
	}
	for _, f := range []struct {
		name, want string
		value      *string
	}{{"operating_mode", modeOf(scope), &d.Spec.OperatingMode}, {"control_plane_scope", scope, &d.Spec.ControlPlaneScope}} {
		if *f.value != "" && *f.value != f.want {
			ps = append(ps, problem{path: "spec." + f.name, code: "schema.rule", message: fmt.Sprintf("is %s, but %s it is always %s: write that, or take it away", *f.value, place, f.want)})
		}
		*f.value = f.want
	}
	if d.Key.Tenant == "" && d.Spec.OperatorIdentityRef != "" {
		ps = append(ps, problem{path: "spec.operator_identity_ref", code: "schema.rule", message: "the platform operates its shared runtimes itself: take it away", atKey: true})
	}
	if d.Key.Tenant != "" {
		for i, id := range d.Spec.AttachedProjectIDs {
			if p := foreign(Item("spec.attached_project_ids", i), id, d.Key.Tenant); p != nil {
				ps = append(ps, *p)
			}
		}
	}
	ps = append(ps, repeated("spec.attached_project_ids", d.Spec.AttachedProjectIDs)...)
	if p := d.Spec.PlacementIntent; p != nil {
		ps = append(ps, repeated("spec.placement_intent.regions", p.Regions)...)
		ps = append(ps, repeated("spec.placement_intent.skus", p.SKUs)...)
	}
	return append(ps, drainRules(d.Spec.OnJobs)...)
}

// foreign returns the problem of a project of another tenant in a field for the tenant's
// own projects.
func foreign(path, projectID, tenant string) *problem {
	if of, _, _ := strings.Cut(projectID, "."); of != tenant {
		return &problem{path: path, code: "ref.other-tenant", message: fmt.Sprintf("%s is a project of another tenant: a tenant's shared runtime serves the projects of %s only", projectID, tenant)}
	}
	return nil
}

func attachmentRules(d *schema.Attachment, t *tree) []problem {
	raw, ps := open(t, "policy_metadata")
	d.Spec.PolicyMetadata = raw
	if d.Key.Tenant != "" {
		if p := foreign("spec.project_id", d.Spec.ProjectID, d.Key.Tenant); p != nil {
			ps = append(ps, *p)
		}
	}
	if c := d.Spec.ContributionPolicy; !c.Allow && c.MaxNodes > 0 {
		ps = append(ps, problem{path: "spec.contribution_policy.max_nodes", code: "schema.rule", message: "the project may offer no node: set allow to true, or take this away", atKey: true})
	}
	return ps
}

func sourceRules(d *schema.ArtifactSource) (ps []problem) {
	rule := func(field, message string) {
		ps = append(ps, problem{path: "spec." + field, code: "schema.rule", message: message, atKey: true})
	}
	s := &d.Spec
	ps = repeated("spec.repositories", s.Repositories)
	if s.Type != schema.SourceFile {
		if s.Host == "" {
			ps = append(ps, problem{path: "spec.host", code: "schema.missing-field", message: fmt.Sprintf("is missing: a source of type %s has a host", s.Type)})
		}
		if s.Directory != "" {
			rule("directory", "only a source of type file has one: take it away")
		}
		if len(s.Repositories) > 0 && d.Key.Tenant != "" {
			rule("repositories", "only a source of the platform's is shared out by repositories: take it away")
		}
		ps = append(ps, repositoryRules(s)...)
		if s.Type == schema.SourceHTTP && s.Credential != "" {
			rule("credential", "only a registry, of type oci, exchanges a secret for a token that expires: take it away")
		}
		return ps
	}
	if d.Key.Tenant != "" {
		return []problem{{path: "spec.type", code: "schema.rule", message: "is file, which is on Berth's own host: only the platform has such sources"}}
	}
	if s.Directory == "" {
		ps = append(ps, problem{path: "spec.directory", code: "schema.missing-field", message: "is missing: a source of type file has a directory"})
	}
	if s.Host != "" {
		rule("host", "a source of type file has none: take it away")
	}
	if s.Credential != "" {
		rule("credential", "a source of type file needs none: take it away")
	}
	return append(ps, repositoryRules(s)...)
}

func repositoryRules(s *schema.ArtifactSourceSpec) (ps []problem) {
	for i, r := range s.Repositories {
		if strings.Contains(r, "{project}") && !strings.Contains(r, "{tenant}") {
			ps = append(ps, problem{path: Item("spec.repositories", i), code: "schema.rule", message: "another tenant may have a project of the same name: put {tenant} into it, too"})
		}
	}
	return ps
}

func artifactRules(s *schema.ArtifactSpec) []problem {
	switch {
	case s.Status == "" && s.Digest != "":
		return []problem{{path: "spec.digest", code: "schema.rule", message: "what is known by its digest is registered: add status: registered", atKey: true}}
	case s.Status != "" && s.Digest == "":
		return []problem{{path: "spec.status", code: "schema.rule", message: fmt.Sprintf("is %s without a digest: add it, or take status away to say what will be published", s.Status)}}
	}
	return nil
}

func accountRules(s *schema.ServiceAccountSpec) (ps []problem) {
	ids := map[string]string{}
	for i, k := range s.PublicKeys {
		key := KeyBytes(k.Key)
		if id, ok := ids[key]; ok {
			ps = append(ps, problem{path: Item("spec.public_keys", i) + ".key", code: "schema.rule", message: fmt.Sprintf("is the key %s already", id)})
		}
		ids[key] = k.ID
	}
	ps = append(ps, repeated("spec.scopes", s.Scopes)...)
	ps = append(ps, repeated("spec.allowed_endpoints", s.AllowedEndpoints)...)
	return append(ps, unlisted(Items("spec.scopes"), s.Scopes, authority.Permissions(), "no permission", "berth explain --roles lists them")...)
}

// KeyBytes returns the decoded key, equal for all base64 spellings.
func KeyBytes(text string) string {
	kind, encoded, _ := strings.Cut(text, " ")
	raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(encoded, "="))
	if err != nil {
		return text
	}
	return kind + " " + string(raw)
}

// unlisted returns the problems of list items that are not among the known names. is
// describes such an item, and where the field that lists the names.
func unlisted[T ~string](at func(int) string, list []string, names []T, is, where string) (ps []problem) {
	var all []string
	for _, n := range names {
		all = append(all, string(n))
	}
	for i, s := range list {
		if slices.Contains(all, s) {
			continue
		}
		help := where
		if len(ps) < MaxFindings {
			if guess := Nearest(s, all); guess != "" {
				help = fmt.Sprintf("did you mean %q?", guess)
			}
		}
		ps = append(ps, problem{path: at(i), code: "schema.enum", message: fmt.Sprintf("%s is %s: %s", s, is, help)})
	}
	return ps
}

func operationRules(d *schema.MemberOperation) (ps []problem) {
	s := &d.Spec
	switch shared := d.Key.Parent != ""; {
	case shared && s.Instance != "":
		ps = append(ps, problem{path: "spec.instance", code: "schema.rule", message: fmt.Sprintf("the operation is on the shared runtime %s, in whose directory it stands: take it away", d.Key.Parent), atKey: true})
	case !shared && s.Instance == "":
		ps = append(ps, problem{path: "spec.instance", code: "schema.missing-field", message: "is missing, want the instance whose member it is"})
	}
	if s.Member == "" && s.Operation != schema.OpRetry {
		ps = append(ps, problem{path: "spec.member", code: "schema.missing-field", message: fmt.Sprintf("is missing: only retry is of a whole, %s is of a member", s.Operation)})
	}
	label := s.Operation == schema.OpLabel
	if label && len(s.Labels) == 0 {
		ps = append(ps, problem{path: "spec.labels", code: "schema.missing-field", message: "is missing: say what to set"})
	}
	if !label && s.Labels != nil {
		ps = append(ps, problem{path: "spec.labels", code: "schema.rule", message: "only label sets labels: take it away", atKey: true})
	}
	if s.OnJobs != nil && (label || s.Operation == schema.OpResume || s.Operation == schema.OpRetry) {
		ps = append(ps, problem{path: "spec.on_jobs", code: "schema.rule", message: fmt.Sprintf("%s ends no jobs: take it away", s.Operation), atKey: true})
	}
	return append(ps, drainRules(s.OnJobs)...)
}

func queueRules(s *schema.QueueMapSpec) []problem {
	ps := repeated("spec.applies_to", s.AppliesTo)
	if s.FallbackQueue == "" {
		return ps
	}
	var names []string
	for _, q := range s.Queues {
		if q.Queue == s.FallbackQueue {
			return ps
		}
		names = append(names, q.Queue)
	}
	message := fmt.Sprintf("%q is none of queues, there is %s", s.FallbackQueue, strings.Join(names, ", "))
	if guess := Nearest(s.FallbackQueue, names); guess != "" {
		message += fmt.Sprintf(": did you mean %q?", guess)
	}
	return append(ps, problem{path: "spec.fallback_queue", code: "schema.rule", message: message})
}

func hookRules(s *schema.HookRuleSpec) []problem {
	ps := append(repeated("spec.apps", s.Apps), repeated("spec.applies_to", s.AppliesTo)...)
	ps = append(ps, exactlyOne("spec.when", []choice{
		{"event", s.When.Event != ""}, {"threshold", s.When.Threshold != nil}, {"repeated_failure", s.When.RepeatedFailure != nil},
	})...)
	if s.When.Event != "" {
		ps = append(ps, eventRule(s.When.Event)...)
	}
	if t := s.When.Threshold; t != nil {
		ps = append(ps, exactlyOne("spec.when.threshold", []choice{{"above", t.Above != nil}, {"below", t.Below != nil}})...)
	}
	for i, e := range s.Then {
		ps = append(ps, exactlyOne(Item("spec.then", i), []choice{
			{"alert", e.Alert != nil}, {"webhook", e.Webhook != nil}, {"action", e.Action != nil},
		})...)
	}
	return ps
}

func eventRule(name string) []problem {
	var types []string
	for _, d := range event.Definitions() {
		types = append(types, string(d.Type))
	}
	return unlisted(func(int) string { return "spec.when.event" }, []string{name}, types, "no event", "there is "+strings.Join(types, ", "))
}

// choice is a field that excludes others.
type choice struct {
	name  string
	given bool
}

func exactlyOne(path string, choices []choice) []problem {
	var names, given []string
	for _, c := range choices {
		names = append(names, c.name)
		if c.given {
			given = append(given, c.name)
		}
	}
	switch len(given) {
	case 1:
		return nil
	case 0:
		return []problem{{path: path, code: "schema.rule", message: "says nothing: want one of " + strings.Join(names, ", ")}}
	}
	return []problem{{path: path, code: "schema.rule", message: fmt.Sprintf("has %s: keep one, and write another for the rest", strings.Join(given, " and "))}}
}
