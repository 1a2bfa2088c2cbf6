package decide_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/decide"
	"berth/schema"
	"berth/schema/estate"
	"berth/schema/onboard"
)

// allRules are those of the daemon. The backend of the estate counts as one that Berth has.
func allRules() []decide.Rule {
	return []decide.Rule{decide.Undated(schema.Lifecycle), schema.QueueModes(contractNow),
		decide.Undated(onboard.Gate([]string{"bare_metal"}))}
}

const (
	chemRoles = "tenants/chem/projects/lab/roles.yaml"
	batchApp  = "platform/catalog/batch/app.yaml"
	strictAll = "platform/policy/strict.yaml"
)

// strictPolicy wants that an app is ready before a project runs it, and the app batch is not.
func strictPolicy() string {
	return doc("Policy", "strict", "spec: {require_onboarding: true}\n")
}

// ruledStory has the rules of the daemon, a second tenant, and pia and cleo as owners of a project each.
func ruledStory(t *testing.T, files map[string]string) *story {
	t.Helper()
	all := with(chem(8), map[string]string{chemRoles: roles("roles", member("cleo", "project_owner")), queueMapPage: "# How to go back\n"})
	s := tell(t, with(all, files))
	s.d = decide.New(decide.Options{Loader: loader(t), Authority: &decide.Authority{Administrators: []string{"root"}}, Rules: allRules()})
	return s
}

// A held document opens nothing, closes nothing and denies nothing.
func TestRulesJudgeWhatComesIntoForce(t *testing.T) {
	eval, chemEval := at+"eval.yaml", chemAt+"eval.yaml"
	strict := map[string]string{strictAll: strictPolicy()}
	realPolicy := map[string]string{queueMapFile: queueMapOf("real-policy", "")}
	for name, c := range map[string]struct {
		before  map[string]string
		commits [][2]any // who, files
		held    map[string]schema.HeldReason
	}{
		"a policy whose deletion is held still denies": {strict,
			[][2]any{{"pia", map[string]string{strictAll: "", eval: instance("eval", 0, 1)}}},
			map[string]schema.HeldReason{strictAll: schema.HeldUnauthorised, eval: schema.HeldDenied}},
		"also in a later commit": {strict,
			[][2]any{{"pia", map[string]string{strictAll: ""}}, {"pia", map[string]string{eval: instance("eval", 0, 1)}}},
			map[string]schema.HeldReason{strictAll: schema.HeldUnauthorised, eval: schema.HeldDenied}},
		"a held app admits nothing": {strict,
			[][2]any{{"pia", map[string]string{batchApp: readyApp(), eval: instance("eval", 0, 1)}}},
			map[string]schema.HeldReason{batchApp: schema.HeldUnauthorised, eval: schema.HeldDenied}},
		"a held policy denies no other tenant": {nil,
			[][2]any{{"pia", strict}, {"cleo", map[string]string{chemEval: instance("eval", 0, 1)}}},
			map[string]schema.HeldReason{strictAll: schema.HeldUnauthorised}},
		"an invalid policy denies nothing": {nil,
			[][2]any{{"root", map[string]string{strictAll: strictPolicy() + "nonsense: true\n"}},
				{"cleo", map[string]string{chemEval: instance("eval", 0, 1)}}},
			map[string]schema.HeldReason{strictAll: schema.HeldInvalid}},
		"a held queue map keeps no page of the platform": {nil,
			[][2]any{{"pia", realPolicy}, {"root", map[string]string{queueMapPage: ""}}},
			map[string]schema.HeldReason{queueMapFile: schema.HeldUnauthorised}},
		"a renamed queue map in another mode leaves nobody without one": {realPolicy,
			[][2]any{{"root", map[string]string{queueMapFile: "",
				"platform/queues/other.yaml": strings.Replace(queueMapOf("passthrough", ""), "name: physics", "name: other", 1)}}},
			map[string]schema.HeldReason{queueMapFile: schema.HeldDenied, "platform/queues/other.yaml": schema.HeldDenied}},
	} {
		t.Run(name, func(t *testing.T) {
			s := ruledStory(t, c.before)
			for _, one := range c.commits {
				s.commits(one[0].(string), one[1].(map[string]string))
			}
			require.Equal(t, c.held, reasons(s.together().Held))
		})
	}
}

// No way out of real-policy comes into force without a rollback, whoever tries it and in however
// many commits.
func TestProjectsLeaveRealPolicyInNoOtherWay(t *testing.T) {
	const other = "platform/queues/other.yaml"
	policy := queueMapOf("real-policy", "")
	named := func(text string) string { return strings.Replace(text, "name: physics", "name: other", 1) }
	only := func(text, who string) string {
		return strings.Replace(text, "applies_to: [physics]", "applies_to: ["+who+"]", 1)
	}
	type commit struct {
		who   string
		files map[string]string
	}
	for name, commits := range map[string][]commit{
		"another mode":            {{"root", map[string]string{queueMapFile: queueMapOf("passthrough", "")}}},
		"a stub of the policy":    {{"root", map[string]string{queueMapFile: queueMapOf("stub-policy", "")}}},
		"deleted":                 {{"root", map[string]string{queueMapFile: ""}}},
		"deleted by a stranger":   {{"pia", map[string]string{queueMapFile: ""}}},
		"renamed to another mode": {{"root", map[string]string{queueMapFile: "", other: named(queueMapOf("passthrough", ""))}}},
		"renamed in two commits": {{"root", map[string]string{queueMapFile: ""}},
			{"root", map[string]string{other: named(queueMapOf("passthrough", ""))}}},
		"added first, deleted later": {{"root",
			map[string]string{other: only(named(queueMapOf("passthrough", "")), "physics.lhc")}},
			{"root", map[string]string{queueMapFile: ""}}},
		"a more specific map": {{"root",
			map[string]string{other: only(named(queueMapOf("passthrough", "")), "physics.lhc")}}},
		"for other tenants": {{"root", map[string]string{queueMapFile: only(policy, "chem")}}},
		"for other tenants, and another map": {{"root",
			map[string]string{queueMapFile: only(policy, "chem"), other: only(named(queueMapOf("passthrough", "")), "physics")}}},
		"by a file that is invalid": {{"root", map[string]string{queueMapFile: policy + "nonsense: true\n"}}},
		"by an invalid file, then deleted": {{"root", map[string]string{queueMapFile: policy + "nonsense: true\n"}},
			{"root", map[string]string{queueMapFile: ""}}},
		"with a rollback that has expired": {{"root", map[string]string{queueMapFile: queueMapOf("passthrough", "2025-12-31")}}},
		"the runbook with it":              {{"root", map[string]string{queueMapFile: "", queueMapPage: ""}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := ruledStory(t, map[string]string{queueMapFile: policy})
			for _, c := range commits {
				s.commits(c.who, c.files)
			}
			m := s.together().Desired.QueueMapOf("batch", "physics", "lhc")
			require.NotNil(t, m)
			require.Equal(t, "real-policy", m.Spec.Mode)
		})
	}
	s := ruledStory(t, map[string]string{queueMapFile: policy})
	s.commits("root", map[string]string{queueMapFile: queueMapOf("passthrough", "2026-02-28")})
	require.Equal(t, "passthrough", s.together().Desired.QueueMapOf("batch", "physics", "lhc").Spec.Mode, "a rollback is the way")
}

// readyApp is the app batch with all that the gate asks of it.
func readyApp() string {
	return doc("App", "batch", "spec:\n  display_name: Batch\n  category: scheduler\n  publisher: us\n  status: active\n  runbook: "+
		queueMapPage+"\n  requires: {permissions: [apps.instance.create]}\n  supports: {control_plane_scopes: [project, tenant]}\n")
}

// A proposal is judged as its merge is: held documents on main add no finding to the change of another tenant.
func TestProposalIsNotJudgedByWhatIsHeld(t *testing.T) {
	s := ruledStory(t, nil)
	s.commits("pia", map[string]string{strictAll: strictPolicy()})
	d := s.together()
	require.Equal(t, map[string]schema.HeldReason{strictAll: schema.HeldUnauthorised}, reasons(d.Held))
	was := contents(t, s.was.Tree)
	head := with(s.main, map[string]string{chemAt + "eval.yaml": instance("eval", 0, 1)})
	repo := trees{"base": s.main, "head": head, "in-force": was}
	p, err := s.d.Proposal(t.Context(),
		decide.Input{Repo: repo, Base: "base", Head: "head", InForce: "in-force", Permitted: s.was.Permitted, Today: "2026-01-31"})
	require.NoError(t, err)
	require.Empty(t, p.Held)
	for _, f := range p.Diagnostics {
		require.NotEqual(t, schema.SeverityError, f.Severity, "%+v", f)
	}

	head = with(was, map[string]string{strictAll: strictPolicy()})
	repo = trees{"base": head, "head": with(head, map[string]string{chemAt + "eval.yaml": instance("eval", 0, 1)})}
	p, err = s.d.Proposal(t.Context(), decide.Input{Repo: repo, Base: "base", Head: "head", Today: "2026-01-31"})
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(p.Diagnostics, func(f schema.Diagnostic) bool {
		return f.Severity == schema.SeverityError && f.Code == onboard.CodeIncomplete && f.File == chemAt+"eval.yaml"
	}), "%+v", p.Diagnostics)
}

// A change that adds a reference to a missing tenant fails its check. An earlier reference warns.
func TestReferenceToNothingFailsTheCheckOfItsChange(t *testing.T) {
	const file = "platform/nodes/gpu-3.yaml"
	s := tell(t, nil)
	reserved := strings.Replace(s.main[file], "spec:\n", "spec:\n  reserved_for: phisics\n", 1)
	if !strings.Contains(reserved, "phisics") {
		reserved = strings.Replace(s.main[file], "spec: {", "spec: {reserved_for: phisics, ", 1)
	}
	findings := func(base, head map[string]string) (all []string) {
		p, err := s.d.Proposal(t.Context(),
			decide.Input{Repo: trees{"base": base, "head": head}, Base: "base", Head: "head", Today: "2026-01-31"})
		require.NoError(t, err)
		for _, f := range p.Diagnostics {
			if f.File == file {
				all = append(all, string(f.Severity)+" "+f.Code)
			}
		}
		return all
	}
	wrong := with(s.main, map[string]string{file: reserved})
	require.Equal(t, []string{"warning node.in-use", "error ref.missing-owner"}, findings(s.main, wrong),
		"without berth/status nobody knows who is on the node")
	require.Equal(t, []string{"warning ref.missing-owner"},
		findings(wrong, with(wrong, map[string]string{file: reserved + "# looked at\n"})))
}

// A proposal shows all that a rule finds in a document that it refuses.
func TestProposalShowsEachFindingOfARefusedDocument(t *testing.T) {
	s := ruledStory(t, nil)
	was := contents(t, s.was.Tree)
	bad := strings.NewReplacer("  contract: "+contractNow+"\n", "", "  runbook: "+queueMapPage+"\n",
		"").Replace(queueMapOf("real-policy", ""))
	repo := trees{"base": was, "head": with(was, map[string]string{queueMapFile: bad}), "in-force": was}
	p, err := s.d.Proposal(t.Context(), decide.Input{Repo: repo, Base: "base", Head: "head", InForce: "in-force", Today: "2026-01-31"})
	require.NoError(t, err)
	var codes []string
	for _, f := range p.Diagnostics {
		codes = append(codes, f.Code)
	}
	require.Subset(t, codes, []string{schema.CodeQueueContract, schema.CodeQueueRunbook, schema.CodeQueueMode})
}

// A change that is refused takes no operation in force with it.
func TestRefusedChangeLeavesOperations(t *testing.T) {
	const drain = "tenants/physics/projects/lhc/operations/drain.yaml"
	s := tell(t, map[string]string{train: instance("train", 3, 1), rules: doc("Policy", "policy", "spec:\n  max_gpus_per_instance: 3\n"),
		drain: doc("MemberOperation", "drain", "spec: {instance: train, operation: drain, member: worker-2, reason: a fan is loud}\n")})
	s.commits("pia", map[string]string{train: instance("train", 2, 4)})
	d := s.together()
	require.Equal(t, map[string]schema.HeldReason{train: schema.HeldDenied}, reasons(d.Held))
}

// For any history, a held document that is taken out of main changes no decision about the others.
func TestHeldDocumentsDecideNothing(t *testing.T) { heldDocumentsDecideNothing(t, 1, 40) }

func heldDocumentsDecideNothing(t *testing.T, seed uint64, histories int) {
	t.Helper()
	strictOf := func(policy string) string { return policy + "  require_onboarding: true\n" }
	policy := doc("Policy", "policy", "spec:\n  max_gpus_per_instance: 8\n")
	files := map[string][]string{ // each has one of these contents, or is missing
		strictAll:                  {strictPolicy(), strictPolicy() + "nonsense: true\n"},
		rules:                      {policy, strictOf(policy), doc("Policy", "policy", "spec:\n  max_gpus_per_instance: 2\n")},
		"tenants/chem/policy.yaml": {policy, strictOf(policy), "a: ["},
		batchApp: {readyApp(), estateFiles(nil)[batchApp],
			strings.Replace(readyApp(), "apps.instance.create", "nonsense", 1)},
		queueMapFile: {queueMapOf("real-policy", ""), queueMapOf("passthrough", ""),
			queueMapOf("passthrough", "2026-02-28"), queueMapOf("passthrough", "2026-01-30")},
		"platform/queues/other.yaml": {strings.Replace(queueMapOf("passthrough", ""), "name: physics", "name: other", 1)},
		queueMapPage:                 {"# How to go back\n"},
		at + "eval.yaml":             {instance("eval", 0, 1), instance("eval", 1, 4)},
		chemAt + "eval.yaml":         {instance("eval", 0, 1), instance("eval", 1, 1), "a: ["},
	}
	paths := slices.Sorted(maps.Keys(files))
	draw := rand.New(rand.NewPCG(seed, 0))
	held, denied := 0, 0
	for range histories {
		s := ruledStory(t, nil)
		for range 4 {
			changes := map[string]string{}
			for range 1 + draw.IntN(4) {
				path := paths[draw.IntN(len(paths))]
				if i := draw.IntN(len(files[path]) + 1); i < len(files[path]) {
					changes[path] = files[path][i]
				} else if _, ok := s.main[path]; ok {
					changes[path] = ""
				}
			}
			who := []string{"root", "root", "pia", "cleo"}[draw.IntN(4)]
			before, was := contents(t, s.was.Tree), s.was
			s.commits(who, changes)
			step := s.steps[0]
			d := s.together()
			if slices.ContainsFunc(d.Held, func(h schema.Held) bool { return h.Reason == schema.HeldBlocked }) {
				continue // an invalid file blocks the deletions of its tree
			}
			for _, h := range d.Held {
				held++
				if h.Reason == schema.HeldDenied {
					denied++
				}
				if h.Reason != schema.HeldNeeds { // else another document decides about it
					checkWithout(t, s, was, before, step, h.File, reasons(d.Held))
				}
			}
		}
	}
	require.Greater(t, held, histories)
	require.NotZero(t, denied)
}

// checkWithout decides a step again, with the content in force for one file.
func checkWithout(
	t *testing.T, s *story, was decide.Standing, before map[string]string, step decide.Step, file string, held map[string]schema.HeldReason,
) {
	t.Helper()
	main := contents(t, step.Tree)
	delete(main, file)
	if text, ok := before[file]; ok {
		main[file] = text
	}
	again := step
	again.Tree = estate.Files(main)
	again.Touched = slices.DeleteFunc(slices.Clone(step.Touched), func(c schema.PathChange) bool { return c.Path == file })
	d, err := s.d.Commit(t.Context(), was, []decide.Step{again}, "2026-01-31")
	require.NoError(t, err)
	now := reasons(d.Held)
	for _, pair := range [][2]map[string]schema.HeldReason{{held, now}, {now, held}} {
		for path, reason := range pair[0] {
			if path != file && reason != schema.HeldNeeds { // else another document decides about it
				require.Contains(t, pair[1], path, "it is %s with or without %s, which is %s; the change: %v", reason, file, held[file],
					step.Touched)
			}
		}
	}
}
