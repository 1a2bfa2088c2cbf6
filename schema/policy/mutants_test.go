package policy_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// mutant is a fault in the package, and the test that detects it.
type mutant struct {
	name, file, was, is, test string
}

func mutants() []mutant {
	return []mutant{
		{"a suffix stands for itself", "hosts.go", `strings.CutPrefix(host, "*")`, `strings.CutPrefix(host, "*.")`, "TestHostPatterns"},
		{"an empty list allows all", "overlay.go", `case allowed == nil:`, `case len(allowed) == 0:`, "TestLayersOnlyNarrow"},
		{"the greatest maximum", "overlay.go", `*m < n)`, `*m > n)`, "TestLayersOnlyNarrow"},
		{"a tenant's list is the first", "overlay.go", `return append([]layer{ownSources(p)}, ls...)`, `return ls`, "TestSourceAllowed"},
		{"no source of the platform's, any host", "overlay.go", `schema.Overlay{ArtifactSourceAllowlist: []string{}}`, `schema.Overlay{}`,
			"TestWiderNamesEachItem"},
		{"another tenant's source", "sources.go", `case !own && s.Key.Tenant != tenant:`, `case false:`, "TestSourceAllowed"},
		{"a tenant's directory", "sources.go", `if !own {`, `if false {`, "TestTenantSourceCannotBeADirectory"},
		{"a directory that shares nothing", "sources.go", `&& source.Spec.Type != schema.SourceFile {`, `{`,
			"TestUnsharedDirectoryServesNoTenant"},
		{"a tag of a file", "sources.go", `rest[0] == ':' && typ == schema.SourceOCI`, `rest[0] == ':'`,
			"TestReferenceAllowedLimitsRepositories"},
		{"the project's artifacts by the tenant's layers", "sources.go", `if ent := project.Entitlements[a.Spec.App]; ent != nil {`,
			`if ent := project.Entitlements[a.Spec.App]; false {`, "TestEntitlementsLimitArtifactSources"},
		{"versions from anywhere", "sources.go", `if d, ok := sourceAllowed(layers, tenant, source); !ok {`,
			`if d, ok := sourceAllowed(layers, tenant, source); ok && false {`, "TestVersionFromDeniedSourceIsDenied"},
		{"one more is not wider", "wider.go", `*n > most {`, `*n > most+1 {`, "TestWiderNamesEachItem"},
		{"wider than the platform only", "wider.go", `wider(admissionLayers(p, t, e.Key.Name, above), entitlementLayers(nil, e)[0])`,
			`wider(platform, entitlementLayers(nil, e)[0])`, "TestWiderNamesEachItem"},
		{"the later day", "noncompliant.go", `said.GraceUntil < n.GraceUntil`, `said.GraceUntil > n.GraceUntil`,
			"TestStrictestNoncompliantRuleCounts"},
		{"a day late", "noncompliant.go", `today < n.GraceUntil`, `today <= n.GraceUntil`, "TestStrictestNoncompliantRuleCounts"},
		{"stopped, so allowed", "noncompliant.go", `.Verdict = schema.Stop`, `.Verdict = schema.Allow`,
			"TestStrictestNoncompliantRuleCounts"},
		{"another day is no news", "noncompliant.go", `a.Day == b.Day`, `true`, "TestImpactedListsChangedFates"},
		{"held ones make room", "policy.go", `if j.new && j.denied() {`, `if j.denied() {`, "TestHeldInstancesCount"},
		{"who looks has an account", "users.go", `authority.QueueSubmit)`, `authority.InstanceRead)`, "TestUsers"},
		{"a service account is a person", "users.go", ` && m.ServiceAccount == ""`, ``, "TestServiceAccountsHaveNoUser"},
		{"remembered whatever the tenant's policy", "judge.go", `a.Policy == b.Policy && `, ``, "TestJudgeMatchesEvaluate"},
		{"remembered whoever came meanwhile", "judge.go", `a.Roles == b.Roles`, `true`, "TestJudgeMatchesEvaluate"},
		{"remembered over the day", "judge.go", `(!k.dated || k.day == today)`, `true`, "TestJudgeMatchesEvaluate"},
		{"new for ever", "judge.go", ` && slices.Equal(k.fresh[name], t.fresh[name])`, ``, "TestJudgeMatchesEvaluate"},
		{"bound by the platform alone", "policy.go", `limits(all)}`, `limits(above[:1])}`, "TestBoundsCombineAllLayers"},
		{"GPUs for nothing", "policy.go", `NoGPUs: want.GPUs == nil &&`, `NoGPUs: false &&`, "TestBoundsCombineAllLayers"},
		{"bound as yesterday", "judge.go", ` && t.day == o.day`, ``, "TestBoundsCombineAllLayers"},
		{"denied by the platform alone", "overlay.go", `ofPolicy(t.Policy, ScopeTenant, sites)...`,
			`ofPolicy(&schema.Policy{Header: t.Policy.Header, Spec: schema.PolicySpec{Overlay: t.Policy.Spec.Overlay}}, ScopeTenant, sites)...`,
			"TestEachRuleDenies"},
		{"a disabled runtime goes on", "runtimes.go", `!o.existing(rt.Key)`, `false`, "TestSharedRuntimesAreEvaluated"},
		{"runtimes by the platform's layers", "policy.go", `r.runtimes(by, above, o`, `r.runtimes(by, r.layers, o`,
			"TestSharedRuntimesAreEvaluated"},
		{"any mode is supported", "policy.go", `if slices.Contains(supports, value) {`, `if value != "" {`, "TestProductModes"},
		{"an app that declares nothing supports all", "policy.go", `supports.Scopes())`, `append(supports.Scopes(), "tenant"))`,
			"TestProductModes"},
		{"suspended, so never stopped", "noncompliant.go", `j.result.Stopped()`,
			`&schema.EffectiveUnit{Key: j.key, DesiredState: schema.DesiredStopped, Suspend: j.result.Suspend}`,
			"TestPolicyStopOverridesSuspension"},
		{"suspended as yesterday", "judge.go", `GraceUntil != ""`, `GraceUntil == "never"`, "TestPolicyStopOverridesSuspension"},
		{"suspended as before", "judge.go", `suspended(a) == suspended(b) && `, ``, "TestSuspensionAppliesBelow"},
		{"runtimes that go comply", "noncompliant.go", ` && after.Unit(key) != nil`, ``, "TestSharedRuntimesAreEvaluated"},
		{"attached without acceptance", "attachments.go", `if view == nil {`, `if view == nil && p == nil {`, "TestTermsAreTwoSided"},
		{"the owner's limits alone", "attachments.go", `narrower, out.Closed || !ok`, `s.SubmissionLimits, out.Closed || !ok`,
			"TestTermsAreTwoSided"},
		{"lent for ever", "attachments.go", `today >= until`, `false`, "TestLoansEndWithTheirDay"},
		{"lent by nobody's leave", "attachments.go", `if !policy.Allow {`, `if p == nil {`, "TestLoansNeedTheAttachment"},
		{"nobody is warned", "findings.go", `severity = schema.SeverityWarning`, `continue`, "TestDisabledDeniesOnlyNewInstances"},
		{"used without an admission", "admission.go", `j.say(schema.Deny, ruleAdmission, j.app.At`,
			`j.say(schema.Allow, ruleAdmission, j.app.At`, "TestOwnAppNeedsAdmission"},
		{"entitled without an admission", "admission.go", `|| r.catalog.Admissions[t.Name][slug] != nil`, `|| t.Name != ""`,
			"TestOwnAppNeedsAdmission"},
		{"admitted on every runtime", "admission.go", `if !slices.Contains(allowed, backend) {`, `if allowed == nil {`,
			"TestOwnAppNeedsAdmission"},
		{"admitted without limits", "admission.go", `a := p.Admissions[t.Name][app]`, `var a *schema.AppAdmission`,
			"TestOwnAppNeedsAdmission"},
		{"reads what is not shared", "sources.go", `if v.Key.Tenant == "" {`, `if v.Key.Tenant != "" || true {`,
			"TestOwnAppNeedsAdmission"},
		{"the platform's source instead of the tenant's", "sources.go", `own := t != nil && app != nil && app.Key.Tenant != ""`,
			`own := t == nil && app != nil && app.Key.Tenant != ""`, "TestOwnAppNeedsAdmission"},
		{"remembered whatever the tenant's apps", "judge.go", `maps.Equal(a.Apps, b.Apps) && sameVersions(a.Versions, b.Versions)`, `true`,
			"TestJudgeMatchesEvaluate"},
		{"remembered whatever is admitted", "judge.go",
			`maps.EqualFunc(c.Admissions, p.Admissions, maps.Equal[map[string]*schema.AppAdmission, map[string]*schema.AppAdmission])`,
			`true`, "TestJudgeMatchesEvaluate"},
		{"explained by the layers above", "explain.go", `k.allow(nil, layers[:i+1])`, `k.allow(nil, layers[:i])`,
			"TestExplainCoversAllLayers"},
	}
}

// TestMutantsApply: each mutant is one change of the package. TestLongMutants kills them.
func TestMutantsApply(t *testing.T) {
	for _, m := range mutants() {
		source, err := os.ReadFile(m.file)
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(source), m.was), "%s: %s has %q", m.name, m.file, m.was)
	}
}

// killMutants builds the package once for each mutant and requires that the
// test named beside it fails: the tests show what the package promises.
func killMutants(t *testing.T, mutants []mutant) {
	t.Helper()
	here, err := os.Getwd()
	require.NoError(t, err)
	var g errgroup.Group
	g.SetLimit(2)
	survived := make([]string, len(mutants))
	for i, m := range mutants {
		source, err := os.ReadFile(m.file)
		require.NoError(t, err)
		dir := t.TempDir()
		file, overlay := filepath.Join(dir, m.file), filepath.Join(dir, "overlay.json")
		require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(source), m.was, m.is, 1)), 0o600))
		replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(here, m.file): file}})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(overlay, replace, 0o600))
		g.Go(func() error {
			out, err := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-vet=off", "-gcflags=-N -l", "-ldflags=-s -w",
				"-overlay", overlay, "-run", "^"+m.test+"$", ".").CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: "+m.test) {
				survived[i] = string(out)
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	for i, m := range mutants {
		if survived[i] != "" {
			t.Errorf("%s (%s): %s does not notice:\n%s", m.name, m.file, m.test, survived[i])
		}
	}
}
