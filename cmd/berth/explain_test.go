package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/inspect"
	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
	"berth/schema"
)

// An instance that is stopped because of its members' nodes is explained from
// berth/status. Without berth/status, the output says that this is missing.
func TestExplainKnowsWhereMembersAre(t *testing.T) {
	files := map[string]string{}
	lab := os.DirFS(filepath.Join(moduleRoot, "examples/lab"))
	require.NoError(t, fs.WalkDir(lab, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(lab, path)
		files[path] = string(text)
		return err
	}))
	edit := func(path, old, now string) {
		require.Contains(t, files[path], old)
		files[path] = strings.Replace(files[path], old, now, 1)
	}
	edit("platform/policy/lab.yaml", "[cpu-small, gpu-a100-2, gpu-a100-4]", "[cpu-small, gpu-a100-4]\n  noncompliant: {action: stop, grace_until: 2020-01-31}")
	edit(decidedPath, "      sku: gpu-a100-2\n", "")
	git := gittest.New(t, files)
	explained := func() *inspect.Explanation {
		e, err := inspect.Explain(t.Context(), inspect.ExplainOptions{Repo: git.Dir, Rev: "main"}, schema.InstanceKey("physics", "lattice", "train"), "", time.Now())
		require.NoError(t, err)
		return e
	}
	e := explained()
	require.True(t, e.MembersUnknown)
	require.False(t, e.Denied)

	daemon, err := gitrepo.Open(t.Context(), gitrepo.Options{URL: git.URL, Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, daemon.Close()) })
	tips, err := daemon.Fetch(t.Context())
	require.NoError(t, err)
	members := []plan.Member{
		{Name: "controller-0", Role: "controller", ControlPlane: true, Node: "dev-lab-1", Address: "10.77.0.10", SSHPort: 22, Region: "lab", SKU: "cpu-small", CPUs: 4, MemoryMiB: 8000},
		{Name: "worker-0", Role: "worker", Node: "dev-gpu-1", Address: "10.77.0.11", SSHPort: 22, Region: "lab", SKU: "gpu-a100-2", CPUs: 4, MemoryMiB: 8000},
	}
	key := schema.InstanceKey("physics", "lattice", "train")
	o := plan.Observed{Key: key, Presence: plan.Present, Complete: true, Unit: &plan.Unit{Instance: schema.EffectiveInstance{Key: key}, Members: members}}
	st := plan.Status{Key: key, Phase: plan.PhaseRunning, EffectiveValues: plan.EffectiveValues{App: "slurm", RuntimeBackend: "slurm"}, Observed: &o}
	for _, m := range members {
		o.Members = append(o.Members, plan.MemberState{Name: m.Name, Node: m.Node, State: plan.Running})
		st.Members = append(st.Members, plan.MemberStatus{Member: m, State: plan.Running})
	}
	inForce, err := daemon.WriteInForce(t.Context(), "", reconciler.InForce{Commit: tips.Main, Epoch: 1})
	require.NoError(t, err)
	_, err = daemon.WriteStatus(t.Context(), "", reconciler.StatusBatch{Revision: reconciler.Revision{Commit: tips.Main, InForce: inForce, Epoch: 1}, Units: []plan.Status{st}})
	require.NoError(t, err)

	e = explained()
	require.False(t, e.MembersUnknown)
	require.True(t, e.Denied)
	require.Equal(t, schema.FateStopped, e.Noncompliance.Fate)
	require.Equal(t, "worker-0 on dev-gpu-1: a node of SKU gpu-a100-2 is not allowed", e.Noncompliance.Because[0].Message)
	var b strings.Builder
	require.NoError(t, e.Text(&cli.Page{Writer: &b}))
	require.Contains(t, b.String(), "Instance physics.lattice/train: denied; it is stopped, as its grace period ended on 2020-01-31\n")
	require.Contains(t, b.String(), "desired_state: stopped\n")
	require.NotContains(t, b.String(), "not judged here")
}
