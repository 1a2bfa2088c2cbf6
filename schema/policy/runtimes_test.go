package policy_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
	"berth/schema/policy"
)

// The layers above a shared runtime of a tenant or the platform apply as to an
// instance, new or existing.
func TestSharedRuntimesAreEvaluated(t *testing.T) {
	const root = "../../examples/campus"
	commons, department := "platform/shared-runtimes/commons/runtime.yaml", "tenants/physics/shared-runtimes/department/runtime.yaml"
	version, err := os.ReadFile(root + "/" + slurmVersion)
	require.NoError(t, err)
	runtime, err := os.ReadFile(root + "/" + department)
	require.NoError(t, err)
	edited := func(old, now string) map[string]string {
		require.Contains(t, string(runtime), old)
		return map[string]string{department: strings.Replace(string(runtime), old, now, 1)}
	}
	for name, tc := range map[string]struct {
		over              map[string]string
		file, rule, field string
		newOnly           bool
	}{
		"denied app": {map[string]string{"platform/policy/zz.yaml": document("Policy", "zz", "hard_deny: {apps: [slurm]}")}, commons,
			"hard_deny", "spec.app", false},
		"by the tenant": {map[string]string{physPolicy: document("Policy", "policy", "hard_deny: {apps: [slurm]}")}, department,
			"hard_deny", "spec.app", false},
		"scope": {map[string]string{physPolicy: document("Policy", "policy", "allowed_control_plane_scopes: [project]")},
			department, "allowed_control_plane_scopes", "spec.control_plane_scope", false},
		"mode": {map[string]string{physPolicy: document("Policy", "policy", "allowed_operating_modes: []")}, department,
			"allowed_operating_modes", "spec.operating_mode", false},
		"region": {edited("campus-north", "mars"), department, "allowed_regions", "spec.placement_intent.regions", false},
		"SKU": {edited("regions: [campus-north]", "skus: [h200]"), department, "allowed_skus", "spec.placement_intent.skus",
			false},
		"GPUs": {edited("count: 1\n", "count: 16\n"), department, "max_gpus_per_instance", "spec.roles", false},
		"disabled version": {map[string]string{slurmVersion: strings.Replace(string(version), "status: active", "status: disabled", 1)},
			department, "status", "spec.version", true},
	} {
		t.Run(name, func(t *testing.T) {
			d := estateFiles(t, root, tc.over)
			found := func(ds []schema.Decision) (all []schema.Decision) {
				for _, d := range ds {
					if d.Verdict == schema.Deny && d.At.File == tc.file {
						all = append(all, d)
					}
				}
				return all
			}
			one := found(policy.Evaluate(d).Decisions())
			require.Len(t, one, 1)
			require.Equal(t, tc.rule, one[0].Rule)
			require.Equal(t, tc.field, one[0].Field)

			// The explanation names the denying layer.
			key := one[0].Key
			e, ok := policy.ExplainShared(d, key)
			require.True(t, ok)
			require.True(t, e.Denied)
			require.Nil(t, e.Noncompliance, "it is new")
			require.Equal(t, one, found(decided(e)))

			// An existing shared runtime is reported with its fate.
			var j policy.Judge
			there := j.Evaluate(d, d, "2026-01-01")
			if tc.newOnly {
				require.Empty(t, found(there.Decisions()))
				return
			}
			require.Equal(t, found(policy.Evaluate(d, everything, policy.At("2026-01-01")).Decisions()), found(there.Decisions()))
			e, ok = policy.ExplainShared(d, key, everything, policy.At("2026-01-01"))
			require.True(t, ok)
			require.Equal(t, there.Noncompliance(key), e.Noncompliance)
			require.Equal(t, found(there.Decisions()), found(decided(e)))
			var told []string
			open := estateFiles(t, root, nil)
			complies := j.Evaluate(open, d, "2026-01-01")
			for _, n := range policy.Impacted(complies, there) {
				if n.Key.Kind == schema.KindSharedRuntime {
					told = append(told, n.Because[0].At.File)
				}
			}
			require.Contains(t, told, tc.file)
			require.NotEmpty(t, there.Noncompliant())
			require.Empty(t, policy.Impacted(there, there))

			// The fate is also reported once it complies again, unless it is deleted.
			again := func(after *schema.Effective) (fates []schema.Fate) {
				for _, n := range policy.Impacted(there, after) {
					if n.Key == key {
						fates = append(fates, n.Fate)
					}
				}
				return fates
			}
			require.Equal(t, []schema.Fate{schema.FateComplies}, again(complies))
			require.Empty(t, again(&schema.Effective{}))
			require.Equal(t, found(j.Evaluate(d, &schema.Desired{}, "").Decisions()), one, "where nothing was before it is new")
		})
	}
	for _, d := range policy.Evaluate(estateFiles(t, root, nil)).Decisions() {
		require.NotEqual(t, schema.KindSharedRuntime, d.Key.Kind, d.Message)
	}
	broken := &schema.Platform{SharedRuntimes: map[string]*schema.SharedRuntimeEstate{"broken": {Name: "broken"}}}
	require.Empty(t, policy.Evaluate(&schema.Desired{Platform: broken}).Decisions())
}

// decided returns the explained decisions of all values.
func decided(e policy.Explanation) (all []schema.Decision) {
	for _, v := range e.Values {
		all = append(all, v.Decisions...)
	}
	return all
}

// The explanation of a shared runtime's fate names the deciding layer.
func TestExplainSharedFate(t *testing.T) {
	d := estateFiles(t, "../../examples/campus", map[string]string{
		physPolicy: document("Policy", "policy", "hard_deny: {apps: [slurm]}\nnoncompliant: {action: stop, grace_until: 2026-01-31}")})
	department := schema.Key{Kind: schema.KindSharedRuntime, Tenant: "physics", Name: "department"}
	for day, fate := range map[string]schema.Fate{"2026-01-30": schema.FateStopping, "2026-01-31": schema.FateStopped} {
		e, ok := policy.ExplainShared(d, department, everything, policy.At(day))
		require.True(t, ok)
		require.True(t, e.Denied)
		require.Equal(t, fate, e.Noncompliance.Fate)
		for _, v := range e.Values {
			if v.Field == "desired_state" {
				require.Equal(t, fate == schema.FateStopped, v.Value == "stopped")
				require.Equal(t, physPolicy, v.Steps[len(v.Steps)-1].Source.File)
			}
		}
	}
}

// The topology key of a placement intent reaches every role, also without SKUs.
func TestSpreadByReachesEachRole(t *testing.T) {
	e := policy.Evaluate(estateFiles(t, "../../examples/campus", nil))
	commons := e.Unit(schema.Key{Kind: schema.KindSharedRuntime, Name: "commons"})
	require.NotEmpty(t, commons.Roles)
	for _, role := range commons.Roles {
		require.Equal(t, "rack", role.SpreadBy, role.Name)
	}
}
