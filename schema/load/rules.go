package load

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"berth/schema"
	"berth/schema/authority"
)

// rules checks the rules of one document that a definition cannot express, and fills in
// values that follow from others. The rules of a kind are in peopleRules, platformRules or unitRules.
type rules struct {
	tree *tree
	problemList
}

// problemList records the problems of one document.
type problemList struct {
	problems []problem
}

// semantics returns the problems of a document that matches its definition.
func (r *documentParser) semantics(doc schema.Document, t *tree) []problem {
	c := rules{tree: t}
	c.suspend(doc.Head())
	c.shownName()
	d, isVersion := doc.(*schema.AppVersion)
	if isVersion {
		d.Releases = r.releases[d.Spec.RuntimeBackend]
	}
	c.document(doc)
	if isVersion {
		c.problems = append(c.problems, r.parameters(d, t)...)
	}
	return c.problems
}

// document checks the rules of a document's kind.
func (r *rules) document(doc schema.Document) {
	people := peopleRules{&r.problemList}
	platform, units := platformRules{&r.problemList, r.tree}, unitRules{&r.problemList, r.tree}
	switch d := doc.(type) {
	case *schema.App:
		platform.app(d)
	case *schema.AppAdmission:
		platform.admission(&d.Spec)
	case *schema.AppVersion:
		platform.manifest(&d.Spec.Manifest)
		platform.ownVersion(d)
		platform.upgradeFrom(d)
		platform.release(d)
	case *schema.Node:
		platform.node(&d.Spec)
	case *schema.Policy:
		platform.policy(&d.Spec)
	case *schema.Entitlement:
		platform.overlay("spec.policy_overrides", &d.Spec.PolicyOverrides)
	case *schema.RoleBinding:
		people.binding(d)
	case *schema.Instance:
		units.instance(d)
	case *schema.SharedRuntime:
		units.sharedRuntime(d)
	case *schema.Attachment:
		units.attachment(d)
	case *schema.Contribution:
		r.repeated("spec.nodes", d.Spec.Nodes)
		r.day("spec.until", d.Spec.Until)
	case *schema.ArtifactSource:
		platform.source(d)
	case *schema.Artifact:
		platform.artifact(&d.Spec)
	case *schema.ServiceAccount:
		people.account(&d.Spec)
	case *schema.MemberOperation:
		units.operation(d)
	case *schema.Site:
		r.repeated("spec.regions", d.Spec.Regions)
	case *schema.RateCard:
		platform.rates(d)
	case *schema.QueueMap:
		platform.queues(&d.Spec)
	case *schema.HookRule:
		platform.hook(&d.Spec)
	}
}

// refuse records a problem at a field's value.
func (r *problemList) refuse(path, code, format string, args ...any) {
	r.problems = append(r.problems, problem{path: path, code: code, message: fmt.Sprintf(format, args...)})
}

// broken records a value that contradicts others.
func (r *problemList) broken(path, format string, args ...any) {
	r.refuse(path, "schema.rule", format, args...)
}

// needless records a field that contradicts others by being there.
func (r *problemList) needless(path, format string, args ...any) {
	r.problems = append(r.problems, problem{path: path, code: "schema.rule", message: fmt.Sprintf(format, args...), atKey: true})
}

// missing records a field that others require.
func (r *problemList) missing(path, format string, args ...any) {
	r.refuse(path, "schema.missing-field", "is missing"+format, args...)
}

// shownName refuses a display name without visible characters, such as unusual blanks.
func (r *rules) shownName() {
	name, ok := r.tree.value["spec"].(map[string]any)["display_name"].(string)
	if ok && !strings.ContainsFunc(name, func(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) }) {
		r.broken("spec.display_name", "shows nothing: write a name with at least one letter or digit")
	}
}

// suspend refuses suspend: true for documents without an effect to suspend, so that
// nobody relies on it.
func (r *rules) suspend(h *schema.Header) {
	if instead := h.Key.Kind.Info().InsteadOfSuspend; h.Suspend && instead != "" {
		r.needless("suspend", "suspends nothing: Berth does nothing for a document of kind %s that could wait; %s", h.Key.Kind, instead)
	}
}

// repeated refuses the items that a list has twice.
func (r *problemList) repeated(path string, list []string) {
	seen := make(map[string]bool, len(list))
	for i, s := range list {
		if seen[s] {
			r.broken(Item(path, i), "%q is in the list already", s)
		}
		seen[s] = true
	}
}

// exactlyOne refuses none, or several, of fields that exclude each other. given has those
// that are there, all has the names of all.
func (r *problemList) exactlyOne(path string, all []string, given ...bool) {
	var names []string
	for i, is := range given {
		if is {
			names = append(names, all[i])
		}
	}
	switch len(names) {
	case 1:
	case 0:
		r.broken(path, "says nothing: want one of %s", strings.Join(all, ", "))
	default:
		r.broken(path, "has %s: keep one, and write another for the rest", strings.Join(names, " and "))
	}
}

// listed refuses a name that is not known. is describes such a name, and where the place
// that lists the known ones.
func (r *problemList) listed(path, name string, known []string, is, where string) {
	if slices.Contains(known, name) {
		return
	}
	help := ": " + where
	if len(r.problems) < MaxFindings { // further findings are cut
		if guess := DidYouMean(name, known); guess != "" {
			help = guess
		}
	}
	r.refuse(path, "schema.enum", "%s is %s%s", name, is, help)
}

// parameters checks a version's parameters against its backend and fills the
// defaults. A backend that is not built in is allowed here: its versions may
// be in the catalog before Berth can run them.
func (r *documentParser) parameters(d *schema.AppVersion, t *tree) []problem {
	def := parametersDef(d.Spec.RuntimeBackend)
	if _, ok := r.judge.defs[def]; !ok {
		return nil
	}
	const path = "spec.manifest.parameters"
	value, ok := t.value["spec"].(map[string]any)["manifest"].(map[string]any)["parameters"].(map[string]any)
	if !ok {
		value = map[string]any{}
	}
	out, ps := r.judge.judge(def, value)
	for i := range ps {
		ps[i].path = join(path, ps[i].path)
	}
	if len(ps) > 0 {
		return ps
	}
	raw, err := schema.CanonicalJSON(out)
	if err != nil {
		return []problem{{path: path, code: "schema.value", message: err.Error()}}
	}
	d.Spec.Manifest.Parameters = raw
	if check := r.checks[d.Spec.RuntimeBackend]; check != nil {
		for _, p := range check(d, raw).Problems { // names are those of each instance's place
			ps = append(ps, problem{path: join(path, p.Path), code: "schema.rule", message: p.Message})
		}
	}
	return ps
}

// permissions refuses permission keys of a list that are not in the table.
func (r *problemList) permissions(path string, list []string) {
	var known []string
	for _, p := range authority.Permissions() {
		known = append(known, string(p))
	}
	for i, key := range list {
		r.listed(Item(path, i), key, known, "no permission", "berth explain --roles lists them")
	}
}

// day refuses a day that no calendar has.
func (r *problemList) day(path, day string) {
	if _, err := time.Parse(time.DateOnly, day); day != "" && err != nil {
		r.broken(path, "is no day of the calendar")
	}
}

// within refuses a project in a list that has its tenant, too.
func (r *problemList) within(path string, list []string) {
	for i, name := range list {
		if tenant, _, isProject := strings.Cut(name, "."); isProject && slices.Contains(list, tenant) {
			r.broken(Item(path, i), "%s is within the tenant %s, which is in the list: remove one of the two", name, tenant)
		}
	}
}
