package policy_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
	"berth/schema/policy"
)

// Once the owner of a runtime narrows max_nodes, the loans beyond it end: the project lends
// the first nodes only.
func TestLoansBeyondMaxNodesAreTakenBack(t *testing.T) {
	lent := func(most int) (nodes []string) {
		d := estateFiles(t, campusEstate, nil)
		contributions := d.Tenants["physics"].Projects["collider"].Contributions
		require.Len(t, contributions, 1)
		for name, c := range contributions {
			two := *c
			two.Spec.Nodes = []string{"gpu-3", "gpu-4"}
			contributions[name] = &two
		}
		attachment := *d.Tenants["physics"].SharedRuntimes["department"].Attachments["collider"]
		attachment.Spec.ContributionPolicy.MaxNodes = most
		d.Tenants["physics"].SharedRuntimes["department"].Attachments = map[string]*schema.Attachment{"collider": &attachment}
		for _, l := range policy.Evaluate(d).Unit(department).Lent {
			nodes = append(nodes, l.Node)
		}
		return nodes
	}
	require.Equal(t, []string{"gpu-3", "gpu-4"}, lent(0), "no bound")
	require.Equal(t, []string{"gpu-3", "gpu-4"}, lent(2))
	require.Equal(t, []string{"gpu-3"}, lent(1))
}
