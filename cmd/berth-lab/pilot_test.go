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

// The documents of the pilot's first two phases.
const (
	pilotApp         = "platform/catalog/slurm/app.yaml"
	pilotEntitlement = "tenants/physics/projects/lattice/entitlements/slurm.yaml"
	otherEntitlement = "tenants/biology/projects/genomes/entitlements/slurm.yaml"
)

// Requirement B6: the pilot as one run on real Slurm, in the five phases of SPA. The platform registers an app
// and publishes a version, a tenant's owner entitles a project, the project creates
// an instance, its people use the queue, the instance changes to a version with another
// configuration and back while a job runs, and is deleted. Each step
// is a pull request of a user with permission, and is refused before the step that
// it depends on. The acceptance criteria are judged while the instance runs (B7).
func TestPilotOnRealSlurm(t *testing.T) {
	t.Parallel()
	p := newPilot(t)
	p.phase("Phase1RegisterAndPublish", (*pilot).register)
	p.phase("Phase2Entitle", (*pilot).entitle)
	p.phase("Phase3CreateInstance", (*pilot).create)
	p.phase("Phase4QueueOperations", func(p *pilot) { p.queueOperations() })
	p.part("CriterionPrivilegedActionsAreAudited", (*scene).criterionActionsAreAudited)
	p.part("CriterionOperatorManagesItsProjectOnly", (*scene).criterionOperatorStaysInItsProject)
	p.part("CriterionOverlaysRestrictRegionsSKUsAndSources", (*scene).criterionOverlaysRestrict)
	p.part("CriterionIncidentIsTraceable", (*scene).criterionIncidentIsTraceable)
	p.phase("Phase5UpgradeRollbackDelete", func(p *pilot) {
		p.upgradeAndBack()
		p.delete()
	})

	var types []string
	for _, e := range p.told() {
		if strings.HasPrefix(e.EventType, "berth.node.") {
			continue // of no project
		}
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
	require.Equal(t, []string{"apps.entitlement.updated", "apps.instance.requested", "apps.instance.running", "apps.instance.failed",
		"apps.instance.running", "apps.instance.failed", "apps.instance.running", "apps.instance.deleting", "apps.instance.deleted"},
		slices.Compact(types))
	require.Empty(t, p.forge.Violations())
	linesFoundByIDs(t, filepath.Join(p.dir, "berth.log"), "")
}

// pilot is a scene whose estate lacks the app and its users, with the documents that add them.
type pilot struct {
	*scene
	text map[string]string
}

func newPilot(t *testing.T) *pilot {
	t.Helper()
	s := newScene(t, hosttest.Image())
	delete(s.config.more, "authority") // as the demo has it: everybody needs the right
	// An unanswered command of Slurm's tools ends sooner: the provoked faults wait for several.
	s.config.more["ssh"] = map[string]string{"user": s.lab.User(), "key": s.lab.KeyFile(), "known_hosts": s.lab.KnownHosts(),
		"command_timeout": "3s"}
	p := &pilot{s, maps.Clone(s.files)}
	p.text[labtest.TrainFile] = operatedTrain()
	p.text[pilotApp] += "  runbook: https://wiki.example.org/slurm\n  requires: {permissions: [apps.instance.read, " +
		"scheduler.instance.read, scheduler.queue.read, scheduler.node.read, scheduler.node.operate]}\n"

	prepared := maps.Clone(s.files)
	s.addOperators(prepared)
	prepared["platform/policy/lab.yaml"] += "  artifact_source_allowlist: [registry.lab.example]\n  require_onboarding: true\n"
	missing := []string{pilotApp, catalogFile, pilotEntitlement, otherEntitlement}
	for _, path := range missing {
		delete(prepared, path)
	}
	s.git.MustCommit(t, "main", gittest.Commit{Message: "before the pilot", Files: prepared, Remove: missing})
	s.serve()
	return p
}

// phase runs a phase as a subtest of its own.
func (p *pilot) phase(name string, do func(*pilot)) {
	p.part(name, func(s *scene) { do(&pilot{s, p.text}) })
}

func (p *pilot) proposeText(title, login string, paths ...string) (branch string, pull int) {
	p.Helper()
	files := map[string]string{}
	for _, path := range paths {
		files[path] = p.text[path]
	}
	branch = strings.ReplaceAll(title, " ", "-")
	pull, err := p.propose(branch, title, login, gittest.Commit{Files: files})
	require.NoError(p, err)
	return branch, pull
}

// refused opens a pull request, whose check has to fail with a reason.
func (p *pilot) refused(title, login, because string, paths ...string) {
	p.Helper()
	branch, pull := p.proposeText(title, login, paths...)
	check, err := p.untilCheck(p.Context(), branch, "failure")
	require.NoError(p, err, title)
	require.Contains(p, check.title+check.summary+strings.Join(check.annotations, "\n"), because, title)
	// An open one is planned again at each merge, and a forge takes about one comment a second.
	require.NoError(p, p.forge.ClosePull(pull))
}

// merged opens a pull request, and merges it when its checks pass.
func (p *pilot) merged(title, login string, paths ...string) {
	p.Helper()
	branch, pull := p.proposeText(title, login, paths...)
	_, err := p.untilCheck(p.Context(), branch, "success")
	require.NoError(p, err, title)
	_, err = p.stage.merge(p.Context(), pull, login)
	require.NoError(p, err, title)
	p.eventually(title+" is in force", func() string {
		if rev := p.tree().Revision; rev.Commit != p.git.Tip("main") || len(rev.Held) > 0 {
			return show(rev)
		}
		return ""
	})
}

func (p *pilot) register() {
	p.refused("publish without an app", labtest.Administrator, "slurm", catalogFile)
	p.refused("register as a tenant", labtest.TenantOwner, "apps.catalog", pilotApp)
	p.merged("register the app", labtest.Administrator, pilotApp)
	p.refused("entitle as a member", labtest.ProjectMember, "apps.entitlement", pilotEntitlement)
	p.refused("create before a version is published", labtest.ProjectAdmin, "22-05", labtest.TrainFile)
	p.merged("publish the version", labtest.Administrator, catalogFile)
}

func (p *pilot) entitle() {
	p.refused("create without an entitlement", labtest.ProjectAdmin, "entitle", labtest.TrainFile)
	p.merged("entitle the project", labtest.TenantOwner, pilotEntitlement)
}

func (p *pilot) create() {
	p.text[labtest.TrainFile] = labtest.InstanceYAML(labtest.Train.Name, 1)
	p.refused("create without an operator", labtest.ProjectAdmin,
		"the app slurm (platform/catalog/slurm/app.yaml:5) is not ready for projects: 2: ", labtest.TrainFile)
	p.text[labtest.TrainFile] = operatedTrain()
	p.merged("create the instance", labtest.ProjectAdmin, labtest.TrainFile)
	st := p.ready(labtest.Train)
	require.Len(p, st.Members, 2)
	require.Equal(p, "slurm", st.RuntimeBackend)
	p.onboarded("slurm")
}

func (p *pilot) delete() {
	ctx := p.Context()
	cluster, _, err := p.clusterOf(ctx, labtest.Train)
	require.NoError(p, err)
	pull, err := p.propose("delete", "delete the instance", labtest.ProjectAdmin, gittest.Commit{Remove: []string{labtest.TrainFile}})
	require.NoError(p, err)
	_, err = p.stage.merge(ctx, pull, labtest.ProjectAdmin)
	require.NoError(p, err)
	require.NoError(p, p.untilGone(ctx, labtest.Train))
	left, err := p.remains(ctx, labtest.Train, cluster)
	require.NoError(p, err)
	require.Empty(p, left)
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
func (p *pilot) upgradeAndBack() {
	p.Helper()
	ctx := p.Context()
	const tuned = "platform/catalog/slurm/tuned.yaml"
	series := strings.NewReplacer("name: 22-05", "name: tuned", "max_time_minutes: 1440", "max_time_minutes: 2880", "version: 22.05.8",
		`version: "22.05"`).Replace(p.text[catalogFile])
	require.NotEqual(p, p.text[catalogFile], series)
	p.text[tuned] = series
	p.merged("publish a version with other defaults", labtest.Administrator, tuned)
	job, err := p.submitJob(ctx, labtest.Train, "#!/bin/sh\nsleep 600\n")
	require.NoError(p, err)
	job, err = p.untilState(ctx, labtest.Train, job.JobID, "RUNNING")
	require.NoError(p, err)
	for _, step := range []struct{ version, limit string }{{"tuned", "main 2-00:00:00"}, {"22-05", "main 1-00:00:00"}} {
		p.text[labtest.TrainFile] = strings.Replace(operatedTrain(), "version: 22-05", "version: "+step.version, 1)
		p.merged("change to "+step.version, labtest.ProjectAdmin, labtest.TrainFile)
		p.eventually("the partition has "+step.limit, func() string {
			if found := p.partitionsOf(labtest.Train); !strings.Contains(found, step.limit) {
				return found
			}
			return ""
		})
		p.ready(labtest.Train)
	}
	now, err := p.queueJob(ctx, labtest.Train, job.JobID)
	require.NoError(p, err)
	require.Equal(p, []any{job.Submitted, job.Started, "RUNNING"}, []any{now.Submitted, now.Started, now.State}, "the job was not touched")
	_, err = p.command(ctx, "", "queue", "cancel", instanceArgument(labtest.Train), job.JobID)
	require.NoError(p, err)
}
