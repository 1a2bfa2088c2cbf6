package gitrepo_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
	"berth/schema"

	"github.com/stretchr/testify/require"

	"berth/examples/await"
)

const instancePath = "tenants/physics/projects/lhc/instances/train.yaml"

// estateFiles is a small estate: a platform and two tenants.
func estateFiles() map[string]string {
	return map[string]string{
		"README.md":                   "estate\n",
		"platform/nodes/gpu-1.yaml":   "node gpu-1\n",
		"tenants/physics/tenant.yaml": "physics\n",
		instancePath:                  "train v1\n",
		"tenants/biology/tenant.yaml": "biology\n",
		"tenants/biology/policy.yaml": "policy\n",
	}
}

func open(t testing.TB, s *gittest.Server, change ...func(*gitrepo.Options)) *gitrepo.Repo {
	t.Helper()
	o := gitrepo.Options{PullRefs: pullRefs(), URL: s.URL, Dir: t.TempDir(), Timeout: await.Limit}
	for _, f := range change {
		f(&o)
	}
	r, err := gitrepo.Open(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close() }) // some tests close it themselves
	return r
}

func fetch(t testing.TB, r interface {
	Fetch(ctx context.Context) (reconciler.Tips, error)
}) reconciler.Tips {
	t.Helper()
	tips, err := r.Fetch(t.Context())
	require.NoError(t, err)
	return tips
}

// snapshots is a repository whose trees can be read.
type snapshots interface {
	Snapshot(ctx context.Context, commit string) (schema.Snapshot, error)
}

// contents reads a whole snapshot, part by part.
func contents(t testing.TB, r snapshots, id string) map[string]string {
	t.Helper()
	s, err := r.Snapshot(t.Context(), id)
	require.NoError(t, err)
	parts, err := s.Parts(t.Context())
	require.NoError(t, err)
	require.True(t, slices.IsSortedFunc(parts, func(a, b schema.Part) int { return strings.Compare(a.Name, b.Name) }))
	out := map[string]string{}
	for _, p := range parts {
		files, err := s.Files(t.Context(), p)
		require.NoError(t, err, p.Name)
		for _, f := range files {
			data, more, err := s.Read(t.Context(), f, 1<<20)
			require.NoError(t, err)
			require.False(t, more)
			out[f.Path] = string(data)
		}
	}
	return out
}

func paths(cs []reconciler.PathChange) []string {
	var out []string
	for _, c := range cs {
		out = append(out, c.Path)
	}
	return out
}

// unit returns the status of an instance.
func unit(tenant, project, name string, phase plan.Phase) plan.Status {
	return plan.Status{Key: schema.InstanceKey(tenant, project, name), Phase: phase, LastApplied: plan.LastApplied{Attempt: 1}}
}

// batch returns a status batch with one event.
func batch(seq uint64, commit string, units ...plan.Status) reconciler.StatusBatch {
	return reconciler.StatusBatch{
		Revision: reconciler.Revision{Commit: commit, Sequence: seq, Epoch: 3},
		Units:    units,
		Events: []plan.Event{{
			EventID: fmt.Sprintf("event-%d", seq), EventType: "instance.running", Version: "1",
			OccurredAt: time.Date(2026, 8, 1, 10, 0, int(seq%60), 0, time.UTC), Payload: []byte(`{"n":1}`),
		}},
		CorrelationIDs: []string{"corr-1"},
	}
}

func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// pullRefs are those of the test server.
func pullRefs() reconciler.PullRefs {
	return reconciler.PullRefs{Head: gittest.PullRef, Groups: gittest.GroupRefs}
}
