//go:build long

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/gitrepo/gittest"
)

// loose returns the file of an object, alone, whatever pack it came in.
func (e *decidedEstate) loose(t *testing.T, id string) string {
	t.Helper()
	packs, err := filepath.Glob(filepath.Join(e.git.Dir, "objects/pack/*.pack"))
	require.NoError(t, err)
	for _, pack := range packs {
		f, err := os.Open(pack)
		require.NoError(t, err)
		require.NoError(t, os.Remove(pack))
		_, err = e.git.GitInput(f, "unpack-objects", "-q")
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	return filepath.Join(e.git.Dir, "objects", id[:2], id[2:])
}

// A repository that lacks an object has no plan. The plan must not show the tenant
// of the missing object as created or deleted.
func TestLongPlanOfAnIncompleteRepository(t *testing.T) {
	const tenant = "tenants/physics/"
	for name, c := range map[string]struct {
		lost string // a revision of the object
		base string
		head map[string]string
		gone []string
	}{
		"the tenant of the base": {lost: "main:" + tenant + "tenant.yaml",
			head: map[string]string{tenant +
				"tenant.yaml": "apiVersion: berth/v1\nkind: Tenant\nmetadata: {name: physics}\nspec: {display_name: New}\n"}},
		"the tenant of both":      {lost: "main:" + tenant + "tenant.yaml", head: map[string]string{"README.md": "x"}},
		"the tenant that goes":    {lost: "main:" + tenant + "tenant.yaml", gone: []string{tenant + "tenant.yaml", decidedPath}},
		"an instance of the base": {lost: "main:" + decidedPath, head: map[string]string{"README.md": "x"}},
		"an instance that goes":   {lost: "main:" + decidedPath, gone: []string{decidedPath}},
		"a directory of the base": {lost: "main:" + tenant + "projects/lattice/instances", head: map[string]string{"README.md": "x"}},
		"the tenant of the head": {lost: "head:" + tenant + "tenant.yaml",
			head: map[string]string{tenant +
				"tenant.yaml": "apiVersion: berth/v1\nkind: Tenant\nmetadata: {name: physics}\nspec: {display_name: New}\n"}},
		"another file of the head":    {lost: "head:" + decidedPath, head: map[string]string{decidedPath: "apiVersion: berth/v1\n"}},
		"the platform of both":        {lost: "main:platform/policy/lab.yaml", head: map[string]string{"README.md": "x"}},
		"what is in force, not base":  {lost: "main~1:" + decidedPath, base: "in force", head: map[string]string{"README.md": "x"}},
		"a directory that is in both": {lost: "main:" + tenant + "projects", head: map[string]string{"README.md": "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newDecidedEstate(t)
			require.NoError(t, e.git.SetRef("refs/heads/main", e.first))
			if c.base == "" { // the base is the only source of the state in force
				require.NoError(t, e.git.SetRef("refs/heads/berth/in-force", ""))
				require.NoError(t, e.git.SetRef("refs/heads/berth/status", ""))
			} else {
				require.NoError(t, e.git.SetRef("refs/heads/main", e.third))
			}
			e.git.MustCommit(t, "head", gittest.Commit{Message: "a change", Parent: e.git.Tip("main"), Files: c.head, Remove: c.gone})
			lost := strings.Replace(c.lost, "main~1", e.first, 1)
			id, err := e.git.Git("rev-parse", lost)
			require.NoError(t, err)
			require.NoError(t, os.Remove(e.loose(t, id)))

			out, code := said(t, newPlanCmd(), "--repo", e.git.Dir, "--base", "main", "--head", "head")
			require.NotZero(t, code, "%s", out)
			for _, claim := range []string{"created", "deleted", "would go", "No instance changes"} {
				require.NotContains(t, out, claim)
			}
			require.Contains(t, out, id, "the object is named")
		})
	}
}
