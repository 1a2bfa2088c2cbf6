package policy_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
	"berth/schema/policy"
)

var everything = policy.Existing(func(schema.Key) bool { return true })

// The strictest rule of several layers counts. No instance is stopped before its
// day, or without a day.
func TestStrictestNoncompliantRuleCounts(t *testing.T) {
	for name, tc := range map[string]struct {
		platform, tenant string // noncompliant in each policy
		today            string
		fate             schema.Fate
		day, source      string
		message          string
	}{
		"nobody says": {"", "", "2030-01-01", schema.FateHeld, "", "",
			"policy no longer allows it; it stays unchanged, and takes no change that does not comply"},
		"hold": {"", "{action: hold}", "2030-01-01", schema.FateHeld, "", physPolicy + ":7",
			"policy no longer allows it; it stays unchanged, and takes no change that does not comply"},
		"stop, before the day": {"{action: stop, grace_until: 2027-01-31}", "", "2027-01-30", schema.FateStopping, "2027-01-31",
			"platform/policy/zz.yaml:7",
			"policy no longer allows it; it stays unchanged until 2027-01-31 begins, UTC, and is then stopped unless it complies"},
		"stop, and nobody knows the day": {"{action: stop, grace_until: 2027-01-31}", "", "", schema.FateStopping, "2027-01-31",
			"platform/policy/zz.yaml:7",
			"policy no longer allows it; it stays unchanged until 2027-01-31 begins, UTC, and is then stopped unless it complies"},
		"stop, on the day": {"{action: stop, grace_until: 2027-01-31}", "", "2027-01-31", schema.FateStopped, "2027-01-31",
			"platform/policy/zz.yaml:7",
			"policy no longer allows it, and its grace was over when 2027-01-31 began, UTC: it is stopped until it complies"},
		"stop goes before hold, above": {"{action: stop, grace_until: 2027-01-31}", "{action: hold}", "2026-01-01", schema.FateStopping,
			"2027-01-31", "platform/policy/zz.yaml:7",
			"policy no longer allows it; it stays unchanged until 2027-01-31 begins, UTC, and is then stopped unless it complies"},
		"stop goes before hold, below": {"{action: hold}", "{action: stop, grace_until: 2027-01-31}", "2026-01-01", schema.FateStopping,
			"2027-01-31", physPolicy + ":7",
			"policy no longer allows it; it stays unchanged until 2027-01-31 begins, UTC, and is then stopped unless it complies"},
		"the earlier day, below": {"{action: stop, grace_until: 2027-01-31}", "{action: stop, grace_until: 2026-12-31}", "2026-12-31",
			schema.FateStopped, "2026-12-31", physPolicy + ":7",
			"policy no longer allows it, and its grace was over when 2026-12-31 began, UTC: it is stopped until it complies"},
		"the earlier day, above": {"{action: stop, grace_until: 2026-12-31}", "{action: stop, grace_until: 2027-01-31}", "2026-01-01",
			schema.FateStopping, "2026-12-31", "platform/policy/zz.yaml:7",
			"policy no longer allows it; it stays unchanged until 2026-12-31 begins, UTC, and is then stopped unless it complies"},
		"the wider layer of equal ones": {"{action: stop, grace_until: 2027-01-31}", "{action: stop, grace_until: 2027-01-31}",
			"2026-01-01", schema.FateStopping, "2027-01-31", "platform/policy/zz.yaml:7",
			"policy no longer allows it; it stays unchanged until 2027-01-31 begins, UTC, and is then stopped unless it complies"},
	} {
		t.Run(name, func(t *testing.T) {
			over := map[string]string{"platform/policy/zz.yaml": document("Policy", "zz", "allowed_regions: [lab]"),
				physPolicy: document("Policy", "policy", "max_gpus_per_instance: 1")}
			if tc.platform != "" {
				over["platform/policy/zz.yaml"] = document("Policy", "zz", "allowed_regions: [lab]\nnoncompliant: "+tc.platform)
			}
			if tc.tenant != "" {
				over[physPolicy] = document("Policy", "policy", "max_gpus_per_instance: 1\nnoncompliant: "+tc.tenant)
			}
			d := lab(t, over)
			e := policy.Evaluate(d, everything, policy.At(tc.today))
			require.Len(t, e.Noncompliant(), 1)
			n := e.Noncompliant()[0]
			require.Equal(t, train, n.Key)
			require.Equal(t, tc.fate, n.Fate)
			require.Equal(t, tc.day, n.Day)
			if tc.source == "" {
				require.Nil(t, n.Source)
			} else {
				require.Equal(t, tc.source, fmt.Sprintf("%s:%d", n.Source.File, n.Source.Line))
			}
			require.Len(t, n.Because, 1)
			require.Equal(t, "max_gpus_per_instance", n.Because[0].Rule)
			require.Equal(t, physPolicy, n.Because[0].Source.File)
			require.Equal(t, trainFile, n.Because[0].At.File)

			var said schema.Decision
			for _, d := range e.Decisions() {
				if d.Rule == "noncompliant" {
					said = d
				}
			}
			require.Equal(t, tc.message, said.Message)
			require.Equal(t, "spec.desired_state", said.Field)
			stopped := tc.fate == schema.FateStopped
			require.Equal(t, stopped, len(e.Denied(train)) == 0, "a stopped instance is planned, a held one is not")
			require.Equal(t, stopped, e.Unit(train).DesiredState == schema.DesiredStopped)
			require.Equal(t, stopped, said.Verdict == schema.Narrow)
			require.Len(t, policy.Findings(e.Decisions()), 1, "a document that does not comply is found on every day")
			require.Equal(t, policy.Findings(policy.Evaluate(d, everything).Decisions()), policy.Findings(e.Decisions()))

			// A new instance is denied, with no fate.
			e = policy.Evaluate(d, policy.At(tc.today))
			require.NotEmpty(t, e.Denied(train))
			require.Empty(t, e.Noncompliant())
		})
	}
}

// A stop without a day has no effect, even if the reader did not check it.
func TestStopNeedsADay(t *testing.T) {
	d := lab(t, map[string]string{physPolicy: document("Policy", "policy", "max_gpus_per_instance: 1")})
	d.Tenants["physics"].Policy.Spec.Noncompliant = schema.Noncompliant{Action: schema.NoncompliantStop}
	e := policy.Evaluate(d, everything, policy.At("2030-01-01"))
	require.Equal(t, schema.FateHeld, e.Noncompliant()[0].Fate)
	require.NotEmpty(t, e.Denied(train))
	require.Equal(t, schema.DesiredRunning, e.Unit(train).DesiredState)
}

// A stop by policy also applies to a suspended instance. Otherwise a user with
// permission to suspend could keep a denied instance running for ever.
func TestPolicyStopOverridesSuspension(t *testing.T) {
	const root, tenant, project = "../../examples/lab/", "tenants/physics/tenant.yaml", "tenants/physics/projects/lattice/project.yaml"
	for _, file := range []string{tenant, project, entitlement, trainFile} {
		over := map[string]string{physPolicy: document("Policy", "policy",
			"max_gpus_per_instance: 1\nnoncompliant: {action: stop, grace_until: 2027-01-31}")}
		for _, name := range []string{file, trainFile} {
			data, err := os.ReadFile(root + name)
			require.NoError(t, err)
			over[name] = string(data)
		}
		over[trainFile] += "  desired_state: stopped\n" // so that this alone changes no other value
		over[file] = strings.Replace(over[file], "\nspec:", "\nsuspend: true\nspec:", 1)
		d := lab(t, over)
		var j policy.Judge
		for _, e := range []*schema.Effective{j.Evaluate(d, d, "2027-01-30"), policy.Evaluate(d, everything, policy.At("2027-01-30"))} {
			require.True(t, e.Unit(train).Suspend, file)
			require.False(t, e.Unit(train).SuspendedBy.IsZero(), file)
		}
		for _, e := range []*schema.Effective{j.Evaluate(d, d, "2027-01-31"), policy.Evaluate(d, everything, policy.At("2027-01-31"))} {
			require.Equal(t, schema.DesiredStopped, e.Unit(train).DesiredState)
			require.False(t, e.Unit(train).Suspend, file)
			require.True(t, e.Unit(train).SuspendedBy.IsZero(), file)
		}
		x, ok := policy.Explain(d.Platform, d.Tenants["physics"], train, everything, policy.At("2027-01-31"))
		require.True(t, ok)
		i := slices.IndexFunc(x.Values, func(v policy.Value) bool { return v.Field == "suspend" })
		require.Equal(t, false, x.Values[i].Value)
		require.Equal(t, physPolicy, x.Values[i].Steps[len(x.Values[i].Steps)-1].Source.File)
	}
}

// Impacted lists the effects of a change of policy, with both positions, and no
// unaffected instance.
func TestImpactedListsChangedFates(t *testing.T) {
	in := func(spec string) *schema.Effective {
		return policy.Evaluate(lab(t, map[string]string{physPolicy: document("Policy", "policy", spec)}), everything,
			policy.At("2026-06-01"))
	}
	tell := func(before, after *schema.Effective) (all []string) {
		for _, n := range policy.Impacted(before, after) {
			text := fmt.Sprintf("%s %s %s", n.Key, n.Fate, n.Day)
			for _, b := range n.Because {
				text += fmt.Sprintf(" %s %s:%d %s:%d", b.Rule, b.Source.File, b.Source.Line, b.At.File, b.At.Line)
			}
			all = append(all, text)
		}
		return all
	}
	open, held := in("max_gpus_per_instance: 6"), in("max_gpus_per_instance: 1")
	grace := in("max_gpus_per_instance: 1\nnoncompliant: {action: stop, grace_until: 2026-07-01}")
	over := in("max_gpus_per_instance: 1\nnoncompliant: {action: stop, grace_until: 2026-06-01}")
	because := " max_gpus_per_instance " + physPolicy + ":6 " + trainFile + ":10"
	require.Empty(t, tell(open, open))
	require.Empty(t, tell(held, held))
	require.Equal(t, []string{"Instance physics.lattice/train held " + because}, tell(open, held))
	require.Equal(t, []string{"Instance physics.lattice/train stopping 2026-07-01" + because}, tell(open, grace))
	require.Equal(t, []string{"Instance physics.lattice/train stopping 2026-07-01" + because}, tell(held, grace))
	require.Equal(t, []string{"Instance physics.lattice/train stopped 2026-06-01" + because}, tell(grace, over))
	sooner := in("max_gpus_per_instance: 1\nnoncompliant: {action: stop, grace_until: 2026-06-15}")
	require.Equal(t, []string{"Instance physics.lattice/train stopping 2026-06-15" + because}, tell(grace, sooner))
	require.Equal(t, []string{"Instance physics.lattice/train complies " + because}, tell(over, open))

	// A different rule is a change; the same rule on another line is not.
	require.Equal(t, []string{"Instance physics.lattice/train held  allowed_control_plane_scopes " + physPolicy + ":6 " + trainFile + ":6"},
		tell(held, in("allowed_control_plane_scopes: [tenant]")))
	require.Empty(t, tell(held, in("allowed_regions: [lab]\nmax_gpus_per_instance: 1")))

	// A deleted instance is reported elsewhere.
	gone := in("max_gpus_per_instance: 6")
	delete(gone.Tenants[train.Tenant].Projects[train.Project].Units, train.Name)
	require.Empty(t, tell(held, gone))

	// Several instances, in order.
	all := in("allowed_operating_modes: []")
	require.Len(t, policy.Impacted(open, all), len(all.Noncompliant()))
	require.IsIncreasing(t, tell(open, all))
}

// A denied instance that exists counts: no new one takes its place.
func TestHeldInstancesCount(t *testing.T) {
	d := lab(t, map[string]string{
		physPolicy: document("Policy", "policy", "max_gpus_per_instance: 1\nmax_instances_per_project: 1"),
		"tenants/physics/projects/lattice/instances/a.yaml": instance("a", "")})
	a := schema.InstanceKey("physics", "lattice", "a")
	e := policy.Evaluate(d, policy.Existing(func(k schema.Key) bool { return k == train }))
	require.Equal(t, "would be instance 2 of the project, at most 1 are allowed", e.Denied(a)[0].Message)
	require.Empty(t, policy.Evaluate(d).Denied(a), "an instance that never existed does not count")
}
