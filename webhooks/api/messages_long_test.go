//go:build long

package api

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
)

// The reason is shown; the message is not.
func TestLongMessagesNeverNameOtherTenants(t *testing.T) {
	for _, what := range []string{
		"tenants/biology/projects/canary/instances/x.yaml is in force and needs it unchanged",
		"tenants/nobody-yet/projects/canary/instances/x.yaml is in force and conflicts with it",
		"needs tenants/physics/policy.yaml, tenants/biology/canary.yaml, which does not come into force",
		"by its uid it went to Instance nobody-yet.canary/x of another tenant",
		"by its uid this is Project biology/canary of another tenant",
		"waits for biology.canary/x",
		"the project biology.canary has it",
		"waits for biology/canary",
		"the canary of Tenant biology",
		"needs AppVersion nobody-yet/canary/v1, which does not come into force",
		"needs App nobody-yet/canary, which does not come into force",
		"needs platform/admissions/nobody-yet/canary.yaml, which does not come into force",
	} {
		w := sayingWorld(t, what)
		for _, r := range w.api.routes {
			if !r.reads() || r.admin {
				continue
			}
			for _, runtime := range []string{"department", "commons"} {
				target := fill(strings.ReplaceAll(r.template, "{shared_runtime_id}", runtime))
				if runtime == "commons" {
					target = strings.ReplaceAll(target, "/collider", "/lattice")
				}
				for _, who := range []string{petra, anna} {
					said := string(body(t, w.get(target, personToken(who))))
					require.NotContains(t, said, "canary", "%s asks %s", who, target)
				}
			}
		}
		var one sharedRuntime
		w.read("/api/v1/orgs/physics/shared-app-runtimes/commons", petra, &one)
		require.Equal(t, &held{Reason: "needs"}, one.Held)
		require.Equal(t, plan.ReasonBlocked, one.Conditions[0].Reason)
	}
}
