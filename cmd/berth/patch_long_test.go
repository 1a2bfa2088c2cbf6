//go:build long

package main

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/cmd/internal/localestate"
	"berth/cmd/internal/localplan"
	"berth/reconciler/plan"
)

// A patch, the commit made of it, and a work tree that holds it are one change:
// they get one plan, in every form, but for the commit's name.
func TestLongPatchPlansAsItsCommit(t *testing.T) {
	loader, err := localestate.NewLoader()
	require.NoError(t, err)
	for _, change := range exampleChanges(t) {
		t.Run(strings.TrimSuffix(filepath.Base(change), ".patch"), func(t *testing.T) {
			file, err := filepath.Abs(change)
			require.NoError(t, err)
			dir, git := estateRepo(t, estateOf(change))
			git("switch", "-q", "-c", "change")
			git("apply", file)
			of := func(r localplan.Request, stdin io.Reader) plan.Proposal {
				r.Repo, r.Base = dir, "main"
				p, err := r.Plan(t.Context(), loader, stdin)
				require.NoError(t, err)
				return p
			}
			worktree := of(localplan.Request{}, nil)
			git("add", ".")
			git("commit", "-q", "-m", "the change")
			committed := of(localplan.Request{Head: "change"}, nil)
			head := strings.TrimSpace(git("rev-parse", "change"))
			require.Equal(t, head, committed.Head)

			for name, p := range map[string]plan.Proposal{
				"patch":            of(localplan.Request{Patch: file}, nil),
				"git diff":         of(localplan.Request{Patch: "-"}, strings.NewReader(git("diff", "main", "change"))),
				"git diff -U0":     of(localplan.Request{Patch: "-"}, strings.NewReader(git("diff", "-U0", "main", "change"))),
				"git format-patch": of(localplan.Request{Patch: "-"}, strings.NewReader(git("format-patch", "--stdout", "main..change"))),
				"the work tree":    worktree,
			} {
				require.Empty(t, p.Head, name)
				require.Equal(t, committed.Digest, p.Digest, name)
				p.Head = committed.Head
				for _, form := range planForms() {
					want, err := formOf(committed, form)
					require.NoError(t, err)
					got, err := formOf(p, form)
					require.NoError(t, err)
					require.Equal(t, string(want), string(got), "%s as %s", name, form)
				}
			}
		})
	}
}
