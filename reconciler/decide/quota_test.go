package decide_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/schema"
)

// operation is a document of an operation on train, and its path.
func operation(name string) (path, content string) {
	return "tenants/physics/projects/lhc/operations/" + name + ".yaml",
		doc("MemberOperation", name, "spec: {instance: train, operation: drain, member: worker-0, reason: a fan is loud}\n")
}

// done is a memory in which operations on train are done.
func done(names ...string) *plan.Memory {
	st := &plan.Status{Key: schema.InstanceKey("physics", "lhc", "train")}
	for _, n := range names {
		st.Operations = append(st.Operations, plan.Operation{Name: n, ID: n, Phase: plan.OperationDone})
	}
	m := plan.Remember(st)
	return &m
}

// Operations that are not done are bounded, by what berth/status says of them. Those in force are never refused.
func TestWaitingOperationsAreBounded(t *testing.T) {
	aFile, a := operation("a")
	bFile, b := operation("b")
	cFile, c := operation("c")
	for _, whose := range []string{"project", "tenant"} {
		t.Run(whose, func(t *testing.T) {
			limit := doc("Policy", "policy", fmt.Sprintf("spec:\n  max_waiting_operations_per_%s: 1\n", whose))
			s := tell(t, map[string]string{aFile: a, bFile: b})
			held := func(facts decide.Facts) (out map[string]string) {
				s.was.Facts = facts
				out = map[string]string{}
				for _, h := range s.together().Held {
					require.Equal(t, schema.HeldDenied, h.Reason)
					out[h.File] = h.Message
				}
				return out
			}
			s.commits("tina", map[string]string{rules: limit})
			require.Empty(t, held(decide.Facts{Memory: done()}), "a narrower policy")
			s.commits("pia", map[string]string{cFile: c})
			require.Equal(t, map[string]string{cFile: fmt.Sprintf("metadata.name: would be operation 3 of the %s that is not done, at most 1 are allowed "+
				"(%s:6); wait until another is done", whose, rules)}, held(decide.Facts{Memory: done()}))
			s.commits("pia", map[string]string{"README.md": "next\n"})
			require.Len(t, held(decide.Facts{Memory: done("a")}), 1)
			s.commits("pia", map[string]string{"README.md": "last\n"})
			require.Empty(t, held(decide.Facts{Memory: done("a", "b")}))
		})
	}
}

// The command line without a status branch takes the operations in force for done, as it takes units for running.
func TestOperationsInForceAreAssumedDone(t *testing.T) {
	aFile, a := operation("a")
	bFile, b := operation("b")
	cFile, c := operation("c")
	dFile, d := operation("d")
	base := estateFiles(map[string]string{aFile: a, dFile: d, rules: doc("Policy", "policy", "spec:\n  max_waiting_operations_per_project: 1\n")})
	head := change(base, map[string]string{bFile: b, cFile: c})
	for name, tc := range map[string]struct {
		memory *plan.Memory
		want   int
	}{"no status branch": {nil, 1}, "all wait": {done(), 2}, "all are done": {done("a", "d"), 1}} {
		t.Run(name, func(t *testing.T) {
			p, err := decide.New(decide.Options{Loader: loader(t)}).Proposal(t.Context(), decide.Input{
				Repo: trees{"base": base, "head": head}, Base: "base", Head: "head", Memory: tc.memory})
			require.NoError(t, err)
			found := 0
			for _, d := range p.Diagnostics {
				if d.Code == "policy.max_waiting_operations_per_project" {
					found++
				}
			}
			require.Equal(t, tc.want, found)
		})
	}
}

// A proposal says that a hold keeps its unit as it is: no plan has the operation.
func TestProposalSaysWhatAHoldKeeps(t *testing.T) {
	aFile, a := operation("a")
	base := estateFiles(map[string]string{aFile: a})
	hold := doc("MemberOperation", "h", "spec: {instance: train, operation: hold, reason: a fan is loud}\n")
	bFile, _ := operation("h")
	p, err := decide.New(decide.Options{Loader: loader(t)}).Proposal(t.Context(),
		decide.Input{Repo: trees{"base": base, "head": change(base, map[string]string{bFile: hold})}, Base: "base", Head: "head"})
	require.NoError(t, err)
	var said []string
	for _, d := range p.Diagnostics {
		if d.Code == "operation.hold" {
			said = append(said, d.File+" "+d.Message)
		}
	}
	require.Equal(t, []string{bFile + " spec.operation: Berth changes nothing on Instance physics.lhc/train from then on, " +
		"until an operation release or until this file is deleted"}, said)
	require.Empty(t, p.Plans)
}

// A proposal says what a merge uses of the quotas that are set, of the projects and tenants that it changes.
func TestProposalSaysWhatIsLeftOfQuotas(t *testing.T) {
	base := estateFiles(map[string]string{rules: doc("Policy", "policy",
		"spec:\n  max_gpus_per_tenant: 20\n  max_nodes_per_project: 9\n  max_instances_per_project: 3\n  max_instances_per_tenant: 9\n")})
	head := change(base, map[string]string{train: instance("train", 2, 1), at + "eval.yaml": instance("eval", 0, 1)})
	p, err := decide.New(decide.Options{Loader: loader(t)}).Proposal(t.Context(),
		decide.Input{Repo: trees{"base": base, "head": head}, Base: "base", Head: "head"})
	require.NoError(t, err)
	require.Empty(t, p.Held)
	var said []string
	for _, q := range p.Quotas {
		require.Equal(t, rules, q.Source.File)
		said = append(said, fmt.Sprintf("%s %s %d→%d of %d", q.Owner, q.Rule, q.Was, q.Used, q.Most))
	}
	require.Equal(t, []string{"physics max_instances_per_tenant 1→2 of 9", "physics max_gpus_per_tenant 1→2 of 20",
		"physics.lhc max_instances_per_project 1→2 of 3", "physics.lhc max_nodes_per_project 2→4 of 9"}, said)
}

// While the GPU hours of the month are used up, changes that add GPUs are held and every other change comes into force. The hold
// ends with the month, or with a policy that allows more.
func TestUsedUpGPUHoursHoldAddedGPUs(t *testing.T) {
	limit := func(whose string, hours int) string {
		return doc("Policy", "policy", fmt.Sprintf("spec:\n  max_monthly_gpu_hours_per_%s: %d\n", whose, hours))
	}
	used := decide.Facts{Memory: done(), GPUSeconds: map[string]int64{"physics.lhc": 5 * 3600, "chem.lab": 900 * 3600}}
	for _, whose := range []string{"project", "tenant"} {
		t.Run(whose, func(t *testing.T) {
			s := tell(t, map[string]string{rules: limit(whose, 5)})
			held := func(facts decide.Facts) (out map[string]schema.HeldReason) {
				s.was.Facts = facts
				out = map[string]schema.HeldReason{}
				for _, h := range s.together().Held {
					out[h.File] = h.Reason
				}
				return out
			}
			quota := map[string]schema.HeldReason{at + "eval.yaml": schema.HeldQuota}
			s.commits("pia", map[string]string{at + "eval.yaml": instance("eval", 1, 1), train: instance("train", 1, 1)})
			require.Equal(t, quota, held(used), "train adds none")
			s.commits("pia", map[string]string{"README.md": "1\n"})
			require.Equal(t, quota, held(used), "it stays held")
			again := *s
			s.commits("tina", map[string]string{rules: limit(whose, 6)})
			require.Empty(t, held(used), "the policy allows more")
			*s = again
			s.commits("pia", map[string]string{"README.md": "2\n"})
			require.Empty(t, held(decide.Facts{Memory: done()}), "a month begins")
		})
	}
}

// A pull request that adds GPUs gets a warning while the hours are used up, and no error.
func TestUsedUpGPUHoursAreAWarning(t *testing.T) {
	base := estateFiles(map[string]string{rules: doc("Policy", "policy", "spec:\n  max_monthly_gpu_hours_per_tenant: 5\n")})
	head := change(base, map[string]string{train: instance("train", 3, 1)})
	p, err := decide.New(decide.Options{Loader: loader(t)}).Proposal(t.Context(), decide.Input{
		Repo: trees{"base": base, "head": head}, Base: "base", Head: "head", GPUSeconds: map[string]int64{"physics.lhc": 5*3600 + 1}})
	require.NoError(t, err)
	require.Len(t, p.Held, 1)
	require.Equal(t, schema.HeldQuota, p.Held[0].Reason)
	require.Len(t, p.Diagnostics, 1)
	require.Equal(t, schema.SeverityWarning, p.Diagnostics[0].Severity)
	require.Contains(t, p.Diagnostics[0].Message, "would add 2 GPUs; physics used 5 GPU hours this month (UTC), and 5 are allowed ("+
		rules+":6); it is held until the month ends or the policy allows more")
	require.Empty(t, p.Plans)
}
