package loop_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/loop"
	"berth/reconciler/plan"
	"berth/schema"
)

const tenantEvil = "apiVersion: berth/v1\nkind: Tenant\nmetadata:\n  name: evil\nspec:\n  display_name: E\n"

// A tenant with an ambiguous tree keeps its documents in force and reports the cause.
// Other tenants are not affected.
func TestUnreadableTenantDoesNotAffectOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path, text := instance("train", 1)
	w.put(map[string]string{path: text, "tenants/evil/tenant.yaml": tenantEvil})
	d := w.start()
	w.eventually("running", w.phase("train", plan.PhaseRunning))

	path, text = instance("train", 2)
	w.put(map[string]string{path: text, "tenants/evil/tenant.yaml": tenantEvil + "  description: more\n"})
	good, err := w.git.Git("rev-parse", "main^{tree}")
	require.NoError(t, err)
	root, err := w.git.Tree("main")
	require.NoError(t, err)
	tenants, err := w.git.Tree("main:tenants")
	require.NoError(t, err)
	for i, e := range tenants {
		if e.Name == "evil" {
			file, err := w.git.Tree("main:tenants/evil")
			require.NoError(t, err)
			tenants[i].ID, err = w.git.WriteTree(file[0], file[0])
			require.NoError(t, err)
		}
	}
	for i, e := range root {
		if e.Name == "tenants" {
			root[i].ID, err = w.git.WriteTree(tenants...)
			require.NoError(t, err)
		}
	}
	tree, err := w.git.WriteTree(root...)
	require.NoError(t, err)
	bad := w.commitTree(tree)

	held := func() bool {
		rev := w.revision()
		return rev.Commit == bad && len(rev.Held) == 1 && rev.Held[0].File == "tenants/evil" && rev.Held[0].Reason == "unreadable" &&
			rev.Frozen == ""
	}
	w.eventually("held", held)
	w.eventually("the neighbour changes", w.running("train", 2))
	require.NoError(t, d.stop())
	content, err := w.git.Read(reconciler.BranchInForce, "tenants/evil/tenant.yaml")
	require.NoError(t, err)
	require.Equal(t, tenantEvil, strings.ReplaceAll(content, "  description: more\n", ""))

	tip := w.git.Tip(reconciler.BranchInForce)
	d = w.start() // the cache is empty
	d.ready()
	d.does(theEstate)
	d.does(theEstate)
	d.written()
	require.True(t, held())
	require.Equal(t, tip, w.git.Tip(reconciler.BranchInForce), "another reconciliation writes nothing")

	commit := w.commitTree(good)
	w.eventually("tenant tree in force again", func() bool { rev := w.revision(); return rev.Commit == commit && len(rev.Held) == 0 })
}

// dim is a repository that at times cannot list one tenant tree.
type dim struct {
	reconciler.Repo
	part string
	dark *atomic.Bool
}

func (d dim) Snapshot(ctx context.Context, commit string) (schema.Snapshot, error) {
	s, err := d.Repo.Snapshot(ctx, commit)
	return dimSnapshot{s, d}, err
}

type dimSnapshot struct {
	schema.Snapshot
	dim
}

func (d dimSnapshot) Files(ctx context.Context, p schema.Part) ([]schema.File, error) {
	if p.Name == d.part && d.dark.Load() {
		return nil, errors.New("input/output error")
	}
	return d.Snapshot.Files(ctx, p)
}

// runsDimmed runs train under a daemon that cannot read its tenant tree while dark.
func (w *world) runsDimmed() (dark *atomic.Bool) {
	w.t.Helper()
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})
	dark = &atomic.Bool{}
	w.start(func(o *loop.Options) { o.Repo = dim{o.Repo, "tenants/physics", dark} })
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	return dark
}

// A tenant tree comes into force as soon as it is readable, without another push.
func TestTenantTreeComesIntoForceOnceReadable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dark := w.runsDimmed()
	dark.Store(true)
	path, text := instance("train", 2)
	commit := w.put(map[string]string{path: text})
	w.eventually("held", func() bool { rev := w.revision(); return rev.Commit == commit && len(rev.Held) == 1 })
	dark.Store(false)
	w.eventually("in force", func() bool { return len(w.revision().Held) == 0 })
	w.eventually("grown", w.running("train", 2))
}
