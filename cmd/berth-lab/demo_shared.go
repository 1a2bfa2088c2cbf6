package main

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/cmd/internal/labtest"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
	"berth/runtimes/slurm/slurmtest"
)

// Steps of the demo about a cluster that two projects share.

// Files of the shared cluster: the declarations of the platform, and their acceptance by each project.
const (
	commonsFile = "platform/shared-runtimes/commons/runtime.yaml"
	latticeFile = "platform/shared-runtimes/commons/attachments/lattice.yaml"
	genomesFile = "platform/shared-runtimes/commons/attachments/genomes.yaml"
	latticeView = "tenants/physics/projects/lattice/instances/share.yaml"
	genomesView = "tenants/biology/projects/genomes/instances/share.yaml"
	appFile     = "platform/catalog/slurm/app.yaml"
	policyFile  = "platform/policy/lab.yaml"
)

// overLimit is the limit of Slurm that refuses a job with too many GPUs.
const overLimit = "AssocMaxGRESPerJob"

// commonsFiles returns the documents of the shared cluster. A job of lattice may have that many GPUs.
func commonsFiles(gpus int) map[string]string {
	attachment := func(name, project string, gpus int) string {
		return fmt.Sprintf(`apiVersion: berth/v1
kind: Attachment
metadata:
  name: %s
spec:
  project_id: %s
  submission_policy:
    max_gpus_per_job: %d
    max_walltime_minutes: 60
`, name, project, gpus)
	}
	view := `apiVersion: berth/v1
kind: Instance
metadata:
  name: share
spec:
  app: slurm
  version: 22-05
  display_name: Part of the shared cluster
  control_plane_scope: platform
  shared_runtime: commons
`
	return map[string]string{
		commonsFile: `apiVersion: berth/v1
kind: SharedRuntime
metadata:
  name: commons
spec:
  app: slurm
  version: 22-05
  display_name: Shared cluster
  roles:
    worker:
      count: 1
      sku: gpu-a100-2
      gpus: {type: a100, count: 2}
`,
		latticeFile: attachment("lattice", labtest.Train.ProjectID(), gpus),
		genomesFile: attachment("genomes", labtest.Assembly.ProjectID(), 2),
		latticeView: view,
		genomesView: view,
	}
}

// share makes a cluster of the platform, and both projects accept its terms.
func (d *demo) share(ctx context.Context) {
	d.title("A cluster that the platform shares between two projects of different tenants")
	files := commonsFiles(1)
	propose := func(branch, title, login string, paths ...string) int {
		some := maps.Clone(files)
		maps.DeleteFunc(some, func(path, _ string) bool { return !slices.Contains(paths, path) })
		return must(d.propose(branch, title, login, gittest.Commit{Files: some}))
	}
	// So far, the app and policy know clusters of one project only.
	files[appFile] = d.files[appFile] +
		"  supports:\n    operating_modes: [tenant_dedicated, platform_managed]\n    control_plane_scopes: [project, platform]\n"
	files[policyFile] = strings.Replace(d.files[policyFile], "[tenant_dedicated]", "[tenant_dedicated, platform_managed]", 1)
	n := propose("add-commons", "A shared cluster for lattice and genomes", labtest.Administrator, appFile, policyFile, commonsFile,
		latticeFile, genomesFile)
	body := must(d.untilComment(ctx, n, "Creates shared runtime `"))
	d.show(firstLines(body, 14))
	must(d.merge(ctx, n, labtest.Administrator))
	s := must(d.untilPhase(ctx, labtest.Commons, plan.PhaseRunning))
	d.attachments(s)

	must(d.merge(ctx, propose("accept-lattice", "lattice accepts its part", labtest.ProjectAdmin, latticeView), labtest.ProjectAdmin))
	// The plan of the next pull request rests on it: merged before, that plan would be stale.
	ensure(d.until(ctx, "lattice is attached", 30*time.Second, func() (bool, error) {
		var err error
		s, err = d.status(ctx, labtest.Commons)
		return err == nil && slices.ContainsFunc(s.Attachments, func(a plan.AttachmentStatus) bool {
			return a.ProjectID == labtest.Train.ProjectID() && a.Phase == plan.AttachmentAttached
		}), err
	}))
	start := time.Now()
	must(d.merge(ctx, propose("accept-genomes", "genomes accepts its part", labtest.AssemblyOwner, genomesView), labtest.AssemblyOwner))
	ensure(d.until(ctx, "both projects are attached", 30*time.Second, func() (bool, error) {
		var err error
		s, err = d.status(ctx, labtest.Commons)
		return err == nil && len(s.Attachments) == 2 &&
			!slices.ContainsFunc(s.Attachments, func(a plan.AttachmentStatus) bool { return a.Phase != plan.AttachmentAttached }), err
	}))
	d.say("→ attached %.1f s after the second project's pull request was opened", time.Since(start).Seconds())
	d.attachments(s)
}

// explainRefusal: a job over a limit is refused by name, which leads to a line of the estate.
func (d *demo) explainRefusal(ctx context.Context) {
	d.title("A job of each project, one over the limit, and wider terms")
	if d.memory {
		d.say("skipped: the memory runtime runs no jobs")
		return
	}
	const script = "#!/bin/sh\nsleep 3\n"
	lattice := must(d.submitAs(ctx, labtest.Commons, labtest.JobUser, script, "/dev/null", 1))
	genomes := must(d.submitAs(ctx, labtest.Commons, labtest.AssemblyUser, script, "/dev/null", 1))
	running := must(d.untilJob(ctx, labtest.Commons, lattice, slurmtest.Running))
	must(d.untilJob(ctx, labtest.Commons, genomes, slurmtest.Running))
	d.say("jobs %s of %s and %s of %s run side by side on %s", lattice, labtest.JobUser, genomes, labtest.AssemblyUser,
		strings.Join(running.Nodes, ","))
	_, err := d.submitAs(ctx, labtest.Commons, labtest.JobUser, script, "/dev/null", 2)
	verify(err != nil && strings.Contains(err.Error(), overLimit), "a job with 2 GPUs is not refused by %s: %v", overLimit, err)
	d.say("a job of %s with 2 GPUs is refused:", labtest.JobUser)
	d.show(err.Error())

	clone := filepath.Join(d.dir, "clone")
	out, err := exec.CommandContext(ctx, "git", "clone", "--quiet", d.git.URL, clone).CombinedOutput()
	verify(err == nil, "git clone: %w: %s", err, out)
	out, err = exec.CommandContext(ctx, d.berth, "explain", "physics.lattice/share", overLimit, "--dir", clone).CombinedOutput()
	verify(err == nil, "berth explain: %w\n%s", err, out)
	d.say("berth explain physics.lattice/share %s", overLimit)
	d.show(string(out))
	line := must(lineOf(commonsFiles(1)[latticeFile], "max_gpus_per_job:"))
	verify(strings.Contains(string(out), fmt.Sprintf("%s:%d", latticeFile, line)), "berth explain does not say %s:%d", latticeFile, line)

	n := must(d.propose("wider-lattice", "lattice: two GPUs for a job", labtest.Administrator,
		gittest.Commit{Files: map[string]string{latticeFile: commonsFiles(2)[latticeFile]}}))
	must(d.untilComment(ctx, n, "Changes shared runtime `"))
	start := time.Now()
	must(d.merge(ctx, n, labtest.Administrator))
	ensure(d.until(ctx, "the job is accepted", 30*time.Second, func() (bool, error) {
		id, err := d.submitAs(ctx, labtest.Commons, labtest.JobUser, "#!/bin/sh\n", "/dev/null", 2)
		if err != nil {
			return false, nil
		}
		d.measured("terms widened, and the refused job accepted", time.Since(start), 2)
		must(d.untilJob(ctx, labtest.Commons, id, slurmtest.Completed))
		return true, nil
	}))
}

// attachments prints the state of each project at the shared cluster.
func (d *demo) attachments(s *plan.Status) {
	var b strings.Builder
	for _, a := range s.Attachments {
		fmt.Fprintf(&b, "%-18s %-10s %s\n", a.ProjectID, a.Phase, a.Message)
	}
	d.show(b.String())
}
