package main

import (
	"fmt"
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
	"berth/runtimes/backends"
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
	edit("platform/policy/lab.yaml", "[cpu-small, gpu-a100-2, gpu-a100-4]",
		"[cpu-small, gpu-a100-4]\n  noncompliant: {action: stop, grace_until: 2020-01-31}")
	edit(decidedPath, "      sku: gpu-a100-2\n", "")
	git := gittest.New(t, files)
	explained := func() *inspect.Explanation {
		e, err := inspect.Explain(t.Context(), inspect.ExplainOptions{Repo: git.Dir, Rev: "main"},
			schema.InstanceKey("physics", "lattice", "train"), "", time.Now())
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
		{Name: "controller-0", Role: "controller", ControlPlane: true, Node: "dev-lab-1", Address: "10.77.0.10", SSHPort: 22, Region: "lab",
			SKU: "cpu-small", CPUs: 4, MemoryMiB: 8000},
		{Name: "worker-0", Role: "worker", Node: "dev-gpu-1", Address: "10.77.0.11", SSHPort: 22, Region: "lab", SKU: "gpu-a100-2", CPUs: 4,
			MemoryMiB: 8000},
	}
	key := schema.InstanceKey("physics", "lattice", "train")
	o := plan.Observed{Key: key, Presence: plan.Present, Complete: true,
		Unit: &plan.Unit{Effective: schema.EffectiveUnit{Key: key}, Members: members}}
	st := plan.Status{Key: key, Phase: plan.PhaseRunning, EffectiveValues: plan.EffectiveValues{App: "slurm", RuntimeBackend: "slurm"},
		Observed: &o}
	for _, m := range members {
		o.Members = append(o.Members, plan.MemberState{Name: m.Name, Node: m.Node, State: plan.Running})
		st.Members = append(st.Members, plan.MemberStatus{Member: m, State: plan.Running})
	}
	inForce, err := daemon.WriteInForce(t.Context(), "", reconciler.InForce{Commit: tips.Main, Epoch: 1})
	require.NoError(t, err)
	_, err = daemon.WriteStatus(t.Context(), "",
		reconciler.StatusBatch{Revision: reconciler.Revision{Commit: tips.Main, InForce: inForce, Epoch: 1}, Units: []plan.Status{st}})
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

// A limit in the refusal of a scheduler leads to the lines of the Attachment and of the Instance that
// set it, for the consumer and for the owner of the shared runtime.
func TestExplainFindsTheLinesOfALimit(t *testing.T) {
	files := exampleFiles(t, "campus")
	const attachment = "tenants/physics/shared-runtimes/department/attachments/collider.yaml"
	const instance = "tenants/physics/projects/collider/instances/analysis.yaml"
	edit := func(path, old, now string) {
		require.Contains(t, files[path], old)
		files[path] = strings.Replace(files[path], old, now, 1)
	}
	edit(attachment, "    max_gpus: 4\n", "    max_gpus: 4\n    max_walltime_minutes: 600\n")
	edit(instance, "  shared_runtime: department\n", "  shared_runtime: department\n  submission_limits:\n    max_walltime_minutes: 120\n")
	git := gittest.New(t, files)
	explain := func(key schema.Key, limit string) (string, error) {
		options := inspect.ExplainOptions{Repo: git.Dir, Rev: "main", Limits: backends.Limits}
		e, err := inspect.Explain(t.Context(), options, key, limit, time.Now())
		if err != nil {
			return "", err
		}
		var b strings.Builder
		require.NoError(t, e.Text(&cli.Page{Writer: &b}))
		return b.String(), nil
	}
	consumer := schema.InstanceKey("physics", "collider", "analysis")
	owner := schema.Key{Kind: schema.KindSharedRuntime, Tenant: "physics", Name: "department"}
	line := func(path, text string) string {
		before, _, found := strings.Cut(files[path], text)
		require.True(t, found)
		return fmt.Sprintf("%s:%d", path, strings.Count(before, "\n")+1)
	}
	for key, field := range map[schema.Key]string{consumer: "submission_limits.max_walltime_minutes",
		owner: "attachments.physics.collider.max_walltime_minutes"} {
		text, err := explain(key, "AssocMaxWallDurationPerJobLimit")
		require.NoError(t, err)
		require.Contains(t, text, "\nlimit: AssocMaxWallDurationPerJobLimit is max_walltime_minutes\n")
		require.Contains(t, text, "\n"+field+": 120\n")
		require.Contains(t, text, line(attachment, "max_walltime_minutes")+"  says 600")
		require.Contains(t, text, line(instance, "max_walltime_minutes")+" ")
		require.NotContains(t, text, "max_gpus")
	}
	text, err := explain(consumer, "AssocGrpGRES")
	require.NoError(t, err)
	require.Contains(t, text, "\nsubmission_limits.max_gpus: 4\n")
	require.Contains(t, text, line(attachment, "max_gpus")+"  says 4")

	_, err = explain(consumer, "AssocGrpSubmitJobsLimit")
	require.EqualError(t, err, "limit AssocGrpSubmitJobsLimit is max_submitted_jobs, which no Attachment and no Instance sets for "+
		"Instance physics.collider/analysis")
	_, err = explain(consumer, "Nothing")
	require.ErrorContains(t, err, `no field or limit "Nothing"; choose one of app.status, `)
	require.ErrorContains(t, err, "; or one of the limits of slurm: AssocGrpCpuLimit, AssocGrpGRES, ")
	_, err = inspect.Explain(t.Context(),
		inspect.ExplainOptions{Repo: git.Dir, Rev: "main", Limits: func(string) map[string]string { return nil }}, consumer,
		"AssocMaxWallDurationPerJobLimit", time.Now())
	require.ErrorContains(t, err, `no field "AssocMaxWallDurationPerJobLimit"; choose one of `)
}
