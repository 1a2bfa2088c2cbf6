package main

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/cmd/internal/labtest"
	"berth/reconciler/gitrepo/gittest"
	"berth/runtimes/host/hosttest"
)

// Requirement B6: the pilot as one run on real Slurm. The platform registers an app
// and publishes a version, a tenant's owner entitles a project, the project creates
// an instance, its people use the queue, the instance changes to a version with another
// configuration and back while a job runs, and is deleted. Each step
// is a pull request of a user with permission, and is refused before the step that
// it depends on.
func TestPilotOnRealSlurm(t *testing.T) {
	t.Parallel()
	const (
		app         = "platform/catalog/slurm/app.yaml"
		version     = catalogFile
		entitlement = "tenants/physics/projects/lattice/entitlements/slurm.yaml"
		other       = "tenants/biology/projects/genomes/entitlements/slurm.yaml"
		owner       = "petra-phys"
	)
	s := newScene(t, hosttest.Image())
	ctx := t.Context()
	delete(s.config.more, "authority") // as the demo has it: everybody needs the right
	text := maps.Clone(s.files)
	prepared := maps.Clone(s.files)
	s.addOperators(prepared)
	// An unanswered command of Slurm's tools ends sooner: the provoked faults wait for several.
	s.config.more["ssh"] = map[string]string{"user": s.lab.User(), "key": s.lab.KeyFile(), "known_hosts": s.lab.KnownHosts(), "command_timeout": "3s"}
	prepared["platform/policy/lab.yaml"] += "  artifact_source_allowlist: [registry.lab.example]\n  require_onboarding: true\n"
	for _, path := range []string{app, version, entitlement, other} {
		delete(prepared, path)
	}
	text[labtest.TrainFile] = operatedTrain()
	text[app] += "  runbook: deploy/runbook.md\n  requires: {permissions: [apps.instance.read, scheduler.queue.read, scheduler.node.read, scheduler.node.operate]}\n"
	s.git.MustCommit(t, "main", gittest.Commit{Message: "before the pilot", Files: prepared, Remove: []string{app, version, entitlement, other}})
	s.serve()

	propose := func(title, login string, paths ...string) (branch string, pull int) {
		t.Helper()
		files := map[string]string{}
		for _, path := range paths {
			files[path] = text[path]
		}
		branch = strings.ReplaceAll(title, " ", "-")
		pull, err := s.propose(branch, title, login, gittest.Commit{Files: files})
		require.NoError(t, err)
		return branch, pull
	}
	refused := func(title, login, because string, paths ...string) {
		t.Helper()
		branch, pull := propose(title, login, paths...)
		check, err := s.untilCheck(ctx, branch, "failure")
		require.NoError(t, err, title)
		require.Contains(t, check.title+check.summary+strings.Join(check.annotations, "\n"), because, title)
		// An open one is planned again at each merge, and a forge takes about one comment a second.
		require.NoError(t, s.forge.ClosePull(pull))
	}
	merged := func(title, login string, paths ...string) {
		t.Helper()
		branch, pull := propose(title, login, paths...)
		_, err := s.untilCheck(ctx, branch, "success")
		require.NoError(t, err, title)
		_, err = s.stage.merge(ctx, pull, login)
		require.NoError(t, err, title)
		s.eventually(title+" is in force", patience, func() string {
			if rev := s.tree().Revision; rev.Commit != s.git.Tip("main") || len(rev.Held) > 0 {
				return show(rev)
			}
			return ""
		})
	}

	refused("publish without an app", labtest.Administrator, "slurm", version)
	refused("register as a tenant", owner, "apps.catalog", app)
	merged("register the app", labtest.Administrator, app)
	refused("entitle as a member", labtest.ProjectMember, "apps.entitlement", entitlement)
	refused("create before a version is published", labtest.ProjectAdmin, "22-05", labtest.TrainFile)
	merged("publish the version", labtest.Administrator, version)
	refused("create without an entitlement", labtest.ProjectAdmin, "entitle", labtest.TrainFile)
	merged("entitle the project", owner, entitlement)
	text[labtest.TrainFile] = labtest.InstanceYAML(labtest.Train.Name, 1)
	refused("create without an operator", labtest.ProjectAdmin, "the app slurm (platform/catalog/slurm/app.yaml:5) is not ready for projects: 2: ", labtest.TrainFile)
	text[labtest.TrainFile] = operatedTrain()
	merged("create the instance", labtest.ProjectAdmin, labtest.TrainFile)

	st := s.ready(labtest.Train)
	require.Len(t, st.Members, 2)
	require.Equal(t, "slurm", st.RuntimeBackend)
	s.onboarded("slurm")
	s.queueOperations()
	s.part("CriterionPrivilegedActionsAreAudited", (*scene).criterionActionsAreAudited)
	s.part("CriterionOperatorManagesItsProjectOnly", (*scene).criterionOperatorStaysInItsProject)
	s.part("CriterionOverlaysRestrictRegionsSKUsAndSources", (*scene).criterionOverlaysRestrict)
	s.part("CriterionIncidentIsTraceable", (*scene).criterionIncidentIsTraceable)
	s.upgradeAndBack(merged, text)

	cluster, _, err := s.clusterOf(ctx, labtest.Train)
	require.NoError(t, err)
	pull, err := s.propose("delete", "delete the instance", labtest.ProjectAdmin, gittest.Commit{Remove: []string{labtest.TrainFile}})
	require.NoError(t, err)
	_, err = s.stage.merge(ctx, pull, labtest.ProjectAdmin)
	require.NoError(t, err)
	require.NoError(t, s.untilGone(ctx, labtest.Train))
	left, err := s.remains(ctx, labtest.Train, cluster)
	require.NoError(t, err)
	require.Empty(t, left)

	var types []string
	for _, e := range s.told() {
		var payload struct {
			Project string `json:"project_id"`
		}
		require.NoError(t, json.Unmarshal(e.Payload, &payload))
		require.Equal(t, labtest.Train.ProjectID(), payload.Project)
		require.NotEmpty(t, e.CorrelationID)
		// An operation or a repair that took effect is another "running"; how many depends on what one observation sees.
		if types = append(types, e.EventType); strings.HasPrefix(e.EventType, "berth.operation.") {
			types = types[:len(types)-1]
		}
	}
	require.Equal(t, []string{"apps.entitlement.updated", "apps.instance.requested", "apps.instance.running", "apps.instance.failed", "apps.instance.running", "apps.instance.failed", "apps.instance.running", "apps.instance.deleting", "apps.instance.deleted"}, slices.Compact(types))
	require.Empty(t, s.forge.Violations())
	linesFoundByIDs(t, filepath.Join(s.dir, "berth.log"), "")
}

// operatedTrain is train with one worker and a service account of its project that operates it.
func operatedTrain() string {
	return strings.Replace(labtest.InstanceYAML(labtest.Train.Name, 1), "spec:\n", "spec:\n  operator_service_account: operator\n", 1)
}

// onboarded checks the seven points with the estate as main has it.
func (s *scene) onboarded(app string) {
	s.Helper()
	files, err := s.git.Files("main")
	require.NoError(s, err)
	dir := s.TempDir()
	for path, text := range files {
		require.NoError(s, os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755))
		require.NoError(s, os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600))
	}
	out, err := exec.CommandContext(s.Context(), s.berth, "onboard", "check", app, "--dir", dir).CombinedOutput()
	require.NoError(s, err, "%s", out)
	require.Contains(s, string(out), app+": 7 of 7 points hold")
}

// queueOperations submits, lists, reads and cancels jobs through the permissioned endpoints.
func (s *scene) queueOperations() {
	s.Helper()
	ctx := s.Context()
	job, err := s.submitJob(ctx, labtest.Train, "#!/bin/sh\necho \"$(id -un): $CUDA_VISIBLE_DEVICES\"\n", "--gpus", "1", "--key", "pilot")
	require.NoError(s, err)
	job, err = s.untilState(ctx, labtest.Train, job.JobID, "COMPLETED")
	require.NoError(s, err)
	require.Equal(s, []any{labtest.JobUser, "pilot", labtest.Train.ProjectID()}, []any{job.User, job.IdempotencyKey, job.ProjectID})
	output, err := s.command(ctx, "", "queue", "output", instanceArgument(labtest.Train), job.JobID)
	require.NoError(s, err)
	require.Equal(s, "anna: 0", strings.TrimSpace(output))
	long, err := s.submitJob(ctx, labtest.Train, "#!/bin/sh\nsleep 600\n")
	require.NoError(s, err)
	_, err = s.untilState(ctx, labtest.Train, long.JobID, "RUNNING")
	require.NoError(s, err)
	_, err = s.command(ctx, "", "queue", "cancel", instanceArgument(labtest.Train), long.JobID)
	require.NoError(s, err)
	_, err = s.untilState(ctx, labtest.Train, long.JobID, "CANCELLED")
	require.NoError(s, err)
	nodes, err := s.command(ctx, "", "node", "list", instanceArgument(labtest.Train))
	require.NoError(s, err)
	require.Contains(s, nodes, "worker-0")
}

// upgradeAndBack changes the instance to a version with other defaults on the same software, and back,
// while a job runs.
func (s *scene) upgradeAndBack(merged func(title, login string, paths ...string), text map[string]string) {
	s.Helper()
	ctx := s.Context()
	const tuned = "platform/catalog/slurm/tuned.yaml"
	series := strings.NewReplacer("name: 22-05", "name: tuned", "max_time_minutes: 1440", "max_time_minutes: 2880", "version: 22.05.8", `version: "22.05"`).Replace(text[catalogFile])
	require.NotEqual(s, text[catalogFile], series)
	text[tuned] = series
	merged("publish a version with other defaults", labtest.Administrator, tuned)
	job, err := s.submitJob(ctx, labtest.Train, "#!/bin/sh\nsleep 600\n")
	require.NoError(s, err)
	job, err = s.untilState(ctx, labtest.Train, job.JobID, "RUNNING")
	require.NoError(s, err)
	for _, step := range []struct{ version, limit string }{{"tuned", "main 2-00:00:00"}, {"22-05", "main 1-00:00:00"}} {
		text[labtest.TrainFile] = strings.Replace(operatedTrain(), "version: 22-05", "version: "+step.version, 1)
		merged("change to "+step.version, labtest.ProjectAdmin, labtest.TrainFile)
		s.eventually("the partition has "+step.limit, patience, func() string {
			if found := s.partitionsOf(labtest.Train); !strings.Contains(found, step.limit) {
				return found
			}
			return ""
		})
		s.ready(labtest.Train)
	}
	now, err := s.queueJob(ctx, labtest.Train, job.JobID)
	require.NoError(s, err)
	require.Equal(s, []any{job.Submitted, job.Started, "RUNNING"}, []any{now.Submitted, now.Started, now.State}, "the job was not touched")
	_, err = s.command(ctx, "", "queue", "cancel", instanceArgument(labtest.Train), job.JobID)
	require.NoError(s, err)
}
