//go:build long

package daemon

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/cmd/internal/labtest"
	"berth/examples/await"
	"berth/reconciler/gitrepo/gittest"
	"berth/webhooks/github/githubtest"
)

// A large deletion is held until a user with permission acknowledges it in a
// comment on its pull request.
func TestLongDeletionIsAcknowledgedInAComment(t *testing.T) {
	many := map[string]string{}
	var gone []string
	for _, n := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		path := "tenants/physics/projects/lattice/instances/" + n + ".yaml"
		many[path] = labtest.InstanceYAML(n, 0)
		gone = append(gone, path)
	}
	many["platform/policy/lab.yaml"] = strings.Replace(labtest.Files()["platform/policy/lab.yaml"], "max_instances_per_project: 3",
		"max_instances_per_project: 20", 1)
	g := newGoverned(t, nil, many)
	g.forge.SetPermission(tenantOwner, "write")
	g.forge.SetPermission(labtest.ProjectMember, "write")
	last := labtest.Train
	last.Name = "g"
	g.until("running", last, running)

	pull, _ := g.open(tenantOwner, gittest.Commit{Message: "tidy up", Remove: gone})
	said := g.check(pull, "failure")
	digest := regexp.MustCompile(
		`Acknowledge-Deletion: ([0-9a-f]+)|/berth ack-delete ([0-9a-f]+)`,
	).FindStringSubmatch(said + g.forge.Comments(pull)[0].Body)
	require.NotNil(t, digest, said)
	command := "/berth ack-delete " + digest[1] + digest[2]
	g.say(pull, labtest.ProjectMember, command, "-1")
	g.say(pull, tenantOwner, command, "rocket")
	g.check(pull, "success")
	g.mergeAs(pull, githubtest.Merge, tenantOwner, "")
	require.Empty(t, g.held())
	await.True(t, "the end of "+last.String(), func() bool {
		tree, err := g.status()
		return err == nil && tree.Units.Get(last) == nil
	}, g.saw)
}
