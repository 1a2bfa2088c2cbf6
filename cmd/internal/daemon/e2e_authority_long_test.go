//go:build long

package daemon

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/cmd/internal/labtest"
	"berth/reconciler/gitrepo/gittest"
	"berth/schema"
	"berth/schema/audit"
	"berth/webhooks/github/githubtest"
)

// A change of a switched-off feature is held with any permissions of its author,
// and the check reports it. It comes into force with the next commit after the
// feature is switched on.
func TestLongSwitchedOffFeaturesAreHeld(t *testing.T) {
	g := newGoverned(t, map[string]any{"features": map[string]any{"instance_changes": false}}, nil)
	pull, _ := g.open(projectAdmin, gittest.Commit{Message: "train", Files: trainOf(1)})
	require.Contains(t, g.check(pull, "failure"), "are switched off by features.")
	g.mergeAs(pull, githubtest.Merge, projectAdmin, "")
	require.Equal(t, map[string]schema.HeldReason{pathOf(t, labtest.Train): schema.HeldDenied}, g.held())

	g.stop()
	config, err := os.ReadFile(g.path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(g.path, []byte(strings.Replace(string(config), "instance_changes: false", "instance_changes: true", 1)),
		0o600))
	g.start()
	pull, _ = g.open(projectAdmin, gittest.Commit{Message: "words", Files: map[string]string{"README.md": "words\n"}})
	require.Contains(t, g.check(pull, "success"), "`physics.lattice/train` was held and comes into force with the next merge")
	g.mergeAs(pull, githubtest.Merge, projectAdmin, "")
	g.until("running", labtest.Train, running)
	require.Empty(t, g.held())
}

// A commit pushed to main without a pull request has no author with permissions. It
// is held once the forge had time to report a pull request. Later merges come into
// force after it, in order.
func TestLongDirectPushIsHeld(t *testing.T) {
	g := newGoverned(t, nil, nil)
	g.git.MustCommit(t, "main", gittest.Commit{Message: "quick", Author: "Anna <anna-lattice@example.org>", Files: trainOf(1)})
	require.NoError(t, g.forge.Sync())
	pull, _ := g.open("dora-genomes",
		gittest.Commit{Message: "assembly", Files: map[string]string{pathOf(t, labtest.Assembly): g.neighbour}})
	g.shown(pull)
	_, err := g.forge.Merge(pull, githubtest.Squash, "dora-genomes")
	require.NoError(t, err)
	again, _ := g.open(tenantOwner,
		gittest.Commit{Message: "words", Files: map[string]string{rolesOfTheLab: g.read(rolesOfTheLab) + "# the lattice's\n"}})
	g.shown(again)
	last, err := g.forge.Merge(again, githubtest.Merge, tenantOwner)
	require.NoError(t, err)

	g.decided()
	g.until("running", labtest.Assembly, running)
	require.Equal(t, map[string]schema.HeldReason{pathOf(t, labtest.Train): schema.HeldUnauthorised}, g.held())
	tree, err := g.status()
	require.NoError(t, err)
	require.Nil(t, tree.Units.Get(labtest.Train))
	nobodys, theirs, hers := g.audited(pathOf(t, labtest.Train)), g.audited(pathOf(t, labtest.Assembly)), g.audited(rolesOfTheLab)
	require.Len(t, nobodys, 1)
	require.Empty(t, nobodys[0].Actor)
	require.Equal(t, audit.Denied, nobodys[0].Verdict)
	require.Len(t, theirs, 1)
	require.Len(t, hers, 1)
	require.Equal(t, last, hers[0].Commit)
	require.Less(t, nobodys[0].Sequence, theirs[0].Sequence)
	require.Less(t, theirs[0].Sequence, hers[0].Sequence)
}
