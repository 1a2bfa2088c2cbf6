package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"berth/cmd/internal/cli"
	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/audit"
	"berth/schema/event"
	"berth/schema/usage"
)

// The scripts read Berth's output: $ESTATE is a repository with one change on main,
// decided, running and recorded. The branches called broken-* are berth/status with
// damage by another program.
func TestLogScripts(t *testing.T) {
	s := gittest.New(t, map[string]string{"README.md": "an estate\n", "platform/rates/lab.yaml": labRates})
	main := s.MustCommit(t, "main",
		gittest.Commit{Message: "a cluster for training", Author: "Ada <ada@example.org>",
			Files: map[string]string{"tenants/physics/projects/lhc/instances/train.yaml": "x\n"}})
	repo, err := gitrepo.Open(t.Context(), gitrepo.Options{URL: s.URL, Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = repo.Close() })
	_, err = repo.Fetch(t.Context())
	require.NoError(t, err)
	held := []schema.Held{{File: "tenants/physics/projects/lhc/instances/huge.yaml", Reason: "denied", Message: "nobody may"}}
	inForce, err := repo.WriteInForce(t.Context(), "", reconciler.InForce{Commit: main, Held: held, CorrelationID: "corr-1", Epoch: 7})
	require.NoError(t, err)

	at := time.Date(2026, 8, 1, 10, 0, 0, 0, time.UTC)
	train := schema.InstanceKey("physics", "lhc", "train")
	ev := func(typ event.Type, id, payload string, seconds int) plan.Event {
		return plan.Event{EventID: event.ID(typ, train, main, seconds), EventType: string(typ),
			OccurredAt: at.Add(time.Duration(seconds) * time.Second), Version: "1", CorrelationID: id, Payload: []byte(payload)}
	}
	records := audit.Chain(audit.Head{}, []audit.Record{
		{
			OccurredAt: at, CorrelationID: "corr-1",
			Author: audit.Author{Actor: "ada", Proof: "pull_request"}, Permission: "apps.instance.create", Action: "document.added",
			Resource: audit.Resource{Key: train},
			Outcome:  audit.Outcome{Verdict: audit.Allowed, Rule: "project_admin", Source: "tenants/physics/projects/lhc/roles.yaml:7"},
			Change:   audit.Change{Commit: main, PullRequest: 7},
		},
		{
			OccurredAt: at, CorrelationID: "corr-1",
			Author: audit.Author{Actor: "eve\x1b[31m"}, Action: "document.added",
			Resource: audit.Resource{Key: schema.InstanceKey("physics", "lhc", "huge")},
			Outcome:  audit.Outcome{Verdict: audit.Denied, Reason: "nobody may"},
			Change:   audit.Change{Commit: main},
		},
		{OccurredAt: at.Add(30 * time.Minute), CorrelationID: "corr-0", Author: audit.Author{Actor: "bo"}, Action: "document.deleted",
			Resource: audit.Resource{Key: schema.InstanceKey("physics", "lhc", "old")}, Outcome: audit.Outcome{Verdict: audit.Allowed}},
	})
	tip, err := repo.WriteStatus(t.Context(), "", reconciler.StatusBatch{
		Revision: reconciler.Revision{Commit: main, InForce: inForce, Epoch: 7, Sequence: 3, Held: held, AuditSequence: 3,
			AuditHead: records[2].Hash},
		Units: []plan.Status{{Key: train, Phase: plan.PhaseFailed,
			LastApplied: plan.LastApplied{FailureReason: "host gpu-1 does not answer", CorrelationID: "corr-1", Revision: main}}},
		Things: []plan.ThingStatus{{Key: schema.Key{Kind: schema.KindNode, Name: "gpu-1"}, Phase: "ready", CorrelationID: "corr-0"}},
		Events: []plan.Event{
			ev(event.InstanceRequested, "corr-1", `{"project_id":"physics.lhc","app_instance_id":"train","revision":"`+main+`"}`, 1),
			ev(event.InstanceFailed, "corr-1",
				`{"project_id":"physics.lhc","app_instance_id":"train","failure_reason":"host gpu-1 does not answer"}`, 2),
			ev(event.InstanceRunning, "corr-0", `{"project_id":"physics.lhc","app_instance_id":"other"}`, 3),
		},
		Audit: records, Usage: usageDays(at),
	})
	require.NoError(t, err)
	files, err := s.Files(tip)
	require.NoError(t, err)
	segment := "audit/2026/08/01/10/000000000003-7.jsonl"
	lines := strings.SplitAfter(files[segment], "\n")
	s.MustCommit(t, "broken-changed",
		gittest.Commit{Message: "x", Parent: tip,
			Files: map[string]string{segment: strings.Replace(files[segment], `"actor":"ada"`, `"actor":"eve"`, 1)}})
	s.MustCommit(t, "broken-short", gittest.Commit{Message: "x", Parent: tip, Files: map[string]string{segment: lines[0] + lines[1]}})
	s.MustCommit(t, "broken-events",
		gittest.Commit{Message: "x", Parent: tip,
			Files: map[string]string{"events/2026/08/01/10/000000000009-7.jsonl": "no json\n", "events/stray": "x"}})

	// The same lines as a daemon leaves them whose clock was a year ahead for a while.
	wrong := gittest.Commit{Message: "x", Parent: tip, Files: map[string]string{}}
	for _, log := range []string{"audit", "events"} {
		one := log + "/2026/08/01/10/000000000003-7.jsonl"
		wrong.Remove = append(wrong.Remove, one)
		for i, hour := range []string{"2026/08/01/09", "2027/08/01/10", "2026/08/01/11"} {
			wrong.Files[fmt.Sprintf("%s/%s/%012d-7.jsonl", log, hour, i+1)] = strings.SplitAfter(files[one], "\n")[i]
		}
	}
	s.MustCommit(t, "wrong-clock", wrong)
	trains := "usage/2026-08-01/physics/c-train.jsonl"
	damaged := map[string]string{trains: files[trains] + "{}\nno json\n"}
	s.MustCommit(t, "usage-damaged", gittest.Commit{Message: "x", Parent: tip, Files: damaged})

	later := usageDays(at)[0]
	late := later.Records[0]
	later.Records[0].Ended = late.Ended.Add(time.Minute)
	later.Records[0].Amounts = later.Records[0].Used()
	late.Day, late.Corrects, late.Amounts = "2026-09-01", "2026-08-01", usage.Amounts{CPUSeconds: -1800}
	closed, err := repo.WriteStatus(t.Context(), tip, reconciler.StatusBatch{
		Revision: reconciler.Revision{Commit: main, InForce: inForce, Epoch: 7, Sequence: 3, Held: held, AuditSequence: 3,
			AuditHead: records[2].Hash},
		Usage: []usage.Day{later, {Tenant: "physics", Cluster: "c-train", Date: "2026-09-01", Records: []usage.Record{late}}},
		Closings: []usage.Closing{
			{Cluster: "c-train", Day: "2026-08-31", Unit: "Instance physics.lhc/train"},
			{Cluster: "c-pool", Day: "2026-08-01", Unit: "SharedRuntime physics/pool", OwnerID: "physics", AppSlug: "slurm",
				BillingPolicyRef: "lab",
				Projects:         []string{"biology.genomes", "physics.lhc"}, Unused: &usage.Unused{IdleCPUs: 7200, IdleGPUs: 3601}},
		},
	})
	require.NoError(t, err)
	_, err = s.Git("branch", "usage-closed", closed)
	require.NoError(t, err)
	_, err = s.Git("update-ref", "refs/heads/"+reconciler.BranchStatus, tip)
	require.NoError(t, err)

	written := func(commit string) string {
		text, err := s.Git("log", "-1", "--date=unix", "--format=%ad", commit)
		require.NoError(t, err)
		seconds, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		require.NoError(t, err)
		return cli.Stamp(time.Unix(seconds, 0))
	}
	runScripts(t, "testdata/logs", func(env *testscript.Env) error {
		env.Setenv("WRITTEN", written(tip))
		env.Setenv("CLOSED", written(closed))
		env.Setenv("ESTATE", s.Dir)
		env.Setenv("MAIN", main[:12])
		env.Setenv("STATUS", tip)
		env.Setenv("SEGMENT", filepath.ToSlash(segment))
		return nil
	})
}

const labRates = `apiVersion: berth/v1
kind: RateCard
metadata: {name: lab}
spec:
  currency: EUR
  cpu_hour: 0.01 EUR
  gpu_hours: [{type: a100, price: 900000}]
  other_gpu_hour: 500000
  shared_cost: {split: by_use, control_plane_day: 2.4 EUR, idle_cpu_hour: 5000, idle_gpu_hour: 250000}
`

// usageDays are jobs of an instance and of a shared runtime; the last one runs over a midnight.
func usageDays(at time.Time) (all []usage.Day) {
	pool := schema.Key{Kind: schema.KindSharedRuntime, Tenant: "physics", Name: "pool"}
	add := func(unit schema.Key, project string, id, cpus, gpus int, days time.Duration) {
		parts, err := usage.Days(usage.Job{
			Cluster: "c-" + unit.Name, JobID: id, Submitted: at, Started: at.Add(time.Minute), Ended: at.Add(91*time.Minute + days),
			State: "COMPLETED", User: "ada", ProjectID: project, Resources: usage.Resources{CPUs: cpus, GPUs: gpus, MemoryMiB: 2048},
		}, nil)
		if err != nil {
			panic(err)
		}
		attachments := map[string]usage.Attachment{}
		if project != "" {
			attachments[project] = usage.Attachment{Name: "terms", BillingPolicyRef: "lab"}
		}
		for _, j := range parts {
			r := usage.New(unit, usage.Record{AppSlug: "slurm"}, j, attachments)
			i := slices.IndexFunc(all, func(d usage.Day) bool { return d.Cluster == r.Cluster && d.Date == r.Day })
			if i < 0 {
				i = len(all)
				all = append(all, usage.Day{Tenant: unit.Tenant, Cluster: r.Cluster, Date: r.Day})
			}
			all[i].Records = append(all[i].Records, r)
		}
	}
	add(schema.InstanceKey("physics", "lhc", "train"), "", 1, 4, 1, 0)
	add(pool, "physics.lhc", 1, 2, 0, 0)
	add(pool, "physics.lhc", 2, 2, 0, 0)
	add(pool, "biology.genomes", 3, 1, 2, 24*time.Hour)
	return all
}
