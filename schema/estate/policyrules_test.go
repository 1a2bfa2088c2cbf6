package estate_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema/estate"
)

// An invalid date stops no instance, a stop has a day, a hold has none, and the
// lists of a layer are limited. An App requires permissions of the table only.
func TestPolicyRules(t *testing.T) {
	var names []string
	for i := range 257 {
		names = append(names, fmt.Sprintf("r%d", i))
	}
	long := strings.Join(names, ", ")
	policy := func(spec string) string {
		return "apiVersion: berth/v1\nkind: Policy\nmetadata:\n  name: policy\nspec: {" + spec + "}\n"
	}
	const file, entitlement = "tenants/physics/policy.yaml", "tenants/physics/projects/lattice/entitlements/slurm.yaml"
	for _, tc := range []struct{ file, text, want string }{
		{file, policy("noncompliant: {action: stop, grace_until: 2027-02-30}"),
			file + ":5:50: error: spec.noncompliant.grace_until: is 2027-02-30, which no calendar has [schema.rule]"},
		{file, policy("noncompliant: {action: stop, grace_until: 2028-02-29}"), ""},
		{file, policy("noncompliant: {action: stop}"),
			file + ":5:8: error: spec.noncompliant: stops instances without a warning: say the day in grace_until [schema.rule]"},
		{file, policy("noncompliant: {action: hold, grace_until: 2027-01-31}"),
			file + ":5:37: error: spec.noncompliant.grace_until: is of no use with hold, which has no end: take it away, or make action " +
				"stop [schema.rule]"},
		{file, policy("noncompliant: {action: hold}"), ""},
		{file, policy("allowed_regions: [" + long + "]"),
			file + ":5:8: error: spec.allowed_regions: has 257 items: at most 256 are read [schema.rule]"},
		{entitlement, strings.NewReplacer("kind: Policy", "kind: Entitlement", "name: policy",
			"name: slurm").Replace(policy("enabled: true, policy_overrides: {allowed_skus: [" + long + "]}")),
			entitlement + ":5:42: error: spec.policy_overrides.allowed_skus: has 257 items: at most 256 are read [schema.rule]"},
		{app, "apiVersion: berth/v1\nkind: App\nmetadata: {name: slurm}\nspec: {display_name: x, category: x, publisher: x, requires: " +
			"{permissions: [apps.instance.raed]}}\n",
			app + ":4:77: error: spec.requires.permissions[0]: apps.instance.raed is no permission: did you mean \"apps.instance.read\"? " +
				"[schema.enum]"},
	} {
		files := lab(t)
		files[tc.file] = tc.text
		l := newLoader(t)
		r, err := l.Load(context.Background(), estate.Files(files))
		require.NoError(t, err)
		var said []string
		for _, d := range r.Diagnostics {
			if d.File == tc.file {
				said = append(said, d.String())
			}
		}
		require.Equal(t, tc.want, strings.Join(said, "\n"))
	}
}
