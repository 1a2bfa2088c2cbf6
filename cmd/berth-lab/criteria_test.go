package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/cmd/internal/labtest"
	"berth/reconciler/gitrepo/gittest"
	"berth/runtimes/slurm/profile"
	"berth/schema"
	"berth/schema/audit"
)

// The five acceptance criteria of the pilot (requirement B7). The first is about the code; the others are about the
// pilot of TestPilotOnRealSlurm, which runs them while its instance runs.

// schedulers are the values of runtime_backend, by which a branch of the core could tell one scheduler from another.
var schedulers = regexp.MustCompile(`(?i)\b(slurm|k8s|kubernetes|rke2|ray|bare_metal)\b`)

// Criterion 1: no scheduler-specific branches in the core. No comparison, case, key of a map or call in the packages that
// decide, place and plan has the name of a scheduler as text, and no name in them is of one.
func TestCriterionNoSchedulerBranchInCore(t *testing.T) {
	t.Parallel()
	require.NotEmpty(t, schedulerBranches(t, "sample.go",
		"package p\nfunc f(b string) bool { switch b { case \"ray\": return true }; return b == \"slurm\" }"))
	require.NotEmpty(t, schedulerBranches(t, "sample.go", "package p\nfunc slurmOnly() {}"))
	require.Empty(t, schedulerBranches(t, "sample.go",
		"package p\n// slurm is fine here\nfunc array(s string) bool { return s == \"array\" }"))
	files := 0
	for _, root := range []string{"../../schema", "../../reconciler", "../../webhooks"} {
		require.NoError(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files++
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Empty(t, schedulerBranches(t, path, string(text)))
			return nil
		}))
	}
	require.Greater(t, files, 100, "the core was not found")
}

// schedulerBranches are the places of a Go file that name a scheduler in code.
func schedulerBranches(t testing.TB, name, text string) (found []string) {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
	require.NoError(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		word := ""
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false // the import law is another test
		case *ast.Ident:
			if strings.Contains(strings.ToLower(n.Name), "slurm") {
				word = n.Name
			}
		case *ast.BasicLit:
			if n.Kind == token.STRING && schedulers.MatchString(n.Value) {
				word = n.Value
			}
		}
		if word != "" {
			found = append(found, fmt.Sprintf("%s: %s", set.Position(n.Pos()), word))
		}
		return true
	})
	return found
}

// part runs a part of the pilot as a subtest of its own.
func (s *scene) part(name string, do func(*scene)) {
	s.Run(name, func(t *testing.T) {
		begun := time.Now()
		d := *s
		d.T = t
		defer func() {
			if t.Failed() {
				t.Logf("the daemon's last words:\n%s", lastLines(filepath.Join(d.dir, "berth.log"), 40))
			}
		}()
		do(&d)
		t.Logf("took %.1f s", time.Since(begun).Seconds())
	})
	if s.Failed() {
		s.FailNow()
	}
}

// berthRead runs a command of berth that reads with the daemon's configuration.
func (s *scene) berthRead(args ...string) string {
	s.Helper()
	out, err := exec.CommandContext(s.Context(), s.berth, append(args, "-c", filepath.Join(s.dir, "berth.yaml"))...).CombinedOutput()
	require.NoError(s, err, "berth %s: %s", strings.Join(args, " "), out)
	return string(out)
}

// records are the audit records that berth lists.
func (s *scene) records() (all []audit.Record) {
	s.Helper()
	for line := range strings.Lines(s.berthRead("audit", "list", "-o", "json")) {
		var r audit.Record
		require.NoError(s, json.Unmarshal([]byte(line), &r), line)
		all = append(all, r)
	}
	return all
}

// criterionActionsAreAudited is criterion 2: each privileged action has an audit record with its correlation id: each
// document of each merged change by the person who brought it, each effect on a running unit, and each denied request.
func (s *scene) criterionActionsAreAudited() {
	s.eventually("the effects on the unit are recorded", func() string {
		for _, r := range s.records() {
			if r.Action == "queue.cancel" {
				return ""
			}
		}
		return "no queue.cancel yet"
	})
	records := s.records()
	actions := map[string]int{}
	for _, r := range records {
		require.NotEmpty(s, r.CorrelationID, "%+v", r)
		require.NotEmpty(s, r.Verdict, "%+v", r)
		actions[r.Action]++
		if strings.HasPrefix(r.Action, "queue.") && r.Verdict == audit.Allowed {
			require.Equal(s, []any{labtest.ProjectAdmin, "physics", labtest.Train.ProjectID(), "slurm", labtest.Train},
				[]any{r.Actor, r.OrgID, r.ProjectID, r.AppSlug, r.Key})
			require.Contains(s, []string{"scheduler." + r.Action, "scheduler.queue.read"}, r.Permission)
		}
		if r.Action == "queue.submit" || r.Action == "queue.cancel" {
			require.Contains(s, s.berthRead("trace", r.CorrelationID), "dev-lab-1  "+r.Action+"  ",
				"the ledger of the host has the effect under the same id")
		}
	}
	require.GreaterOrEqual(s, actions["queue.submit"], 2, "%v", actions)
	require.GreaterOrEqual(s, actions["queue.cancel"], 1, "%v", actions)

	out, err := s.git.Git("log", "--first-parent", "--format=%H", "main")
	require.NoError(s, err)
	merged := 0
	for _, commit := range strings.Fields(out) {
		pull := slices.IndexFunc(records, func(r audit.Record) bool { return r.Commit == commit && r.PullRequest > 0 })
		if pull < 0 {
			continue
		}
		merged++
		files, err := s.git.Git("diff", "--name-only", commit+"^1", commit)
		require.NoError(s, err)
		for _, file := range strings.Fields(files) {
			i := slices.IndexFunc(records, func(r audit.Record) bool { return r.Commit == commit && r.File == file })
			require.GreaterOrEqual(s, i, 0, "no audit record of %s in %s", file, commit)
			require.NotEmpty(s, records[i].Actor, "%+v", records[i])
			require.Equal(s, records[pull].CorrelationID, records[i].CorrelationID, "one change, one id")
			require.NotEmpty(s, records[i].Permission)
		}
	}
	require.GreaterOrEqual(s, merged, 4, "app, version, entitlement, instance")
	require.Contains(s, s.berthRead("audit", "verify"), "whole")
}

// operators are the service accounts of the pilot, one in each project, with the same scopes.
var operators = []schema.Key{
	{Kind: schema.KindServiceAccount, Tenant: "physics", Project: "lattice", Name: "operator"},
	{Kind: schema.KindServiceAccount, Tenant: "biology", Project: "genomes", Name: "operator"},
}

// addOperators adds the service accounts to an estate.
func (s *scene) addOperators(files map[string]string) {
	s.Helper()
	key := filepath.Join(s.dir, "operator")
	out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput()
	require.NoError(s, err, "%s", out)
	public, err := os.ReadFile(key + ".pub")
	require.NoError(s, err)
	for _, account := range operators {
		files[pathOf(s, account)] = `apiVersion: berth/v1
kind: ServiceAccount
metadata: {name: operator}
spec:
  display_name: Operator
  public_keys: [{id: current, key: ` + strings.Join(strings.Fields(string(public))[:2], " ") + `}]
  scopes: [apps.instance.read, scheduler.instance.read, scheduler.queue.read, scheduler.node.read, scheduler.node.operate]
  allowed_endpoints:
    - GET /api/v1/projects/{project_id}/app-instances/{app_instance_id}
    - GET /api/v1/projects/{project_id}/app-instances/{app_instance_id}/queue/jobs
    - GET /api/v1/projects/{project_id}/app-instances/{app_instance_id}/nodes
    - POST /api/v1/projects/{project_id}/app-instances/{app_instance_id}/nodes/{node}/operations
`
		roles := strings.TrimSuffix(filepath.Dir(pathOf(s, account)), "service-accounts") + "roles.yaml"
		require.Contains(s, files, roles)
		files[roles] += "    - service_account: operator\n      role: service_account\n"
	}
}

// criterionOperatorStaysInItsProject is criterion 3: the operator of the project manages its instance, and the same account
// of another project finds nothing there. The instance runs, so an answer would be possible.
func (s *scene) criterionOperatorStaysInItsProject() {
	ask := func(token, method, path, body string) (int, string) {
		s.Helper()
		req, err := http.NewRequestWithContext(s.Context(), method, "http://"+s.daemon.listen+"/api/v1/projects/"+path,
			strings.NewReader(body))
		require.NoError(s, err)
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", "criterion-"+strconv.Itoa(int(time.Now().UnixNano())))
		res, err := http.DefaultClient.Do(req)
		require.NoError(s, err)
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		require.NoError(s, err)
		return res.StatusCode, string(text)
	}
	instance := labtest.Train.ProjectID() + "/app-instances/" + labtest.Train.Name
	requests := []struct{ method, path, body string }{
		{"GET", instance, ""}, {"GET", instance + "/queue/jobs", ""}, {"GET", instance + "/nodes", ""},
		{"POST", instance + "/nodes/worker-0/operations", `{"operation":"drain","reason":"criterion"}`},
		{"POST", instance + "/nodes/worker-0/operations", `{"operation":"resume","reason":"criterion"}`},
	}
	drained := func(want bool) {
		s.Helper()
		s.eventually(fmt.Sprintf("worker-0 is drained: %v", want), func() string {
			nodes, err := s.command(s.Context(), "", "node", "list", instanceArgument(labtest.Train), "--live")
			require.NoError(s, err)
			if strings.Contains(strings.ToLower(nodes), "drain") != want {
				return nodes
			}
			return ""
		})
	}
	for _, account := range operators {
		cmd := exec.Command(s.berth, "token", "--service-account", account.ProjectID()+"/"+account.Name, "--key",
			filepath.Join(s.dir, "operator"), "--audience", "demo")
		token, err := cmd.Output()
		require.NoError(s, err)
		own := account.ProjectID() == labtest.Train.ProjectID()
		for _, r := range requests {
			status, text := ask(strings.TrimSpace(string(token)), r.method, r.path, r.body)
			if own {
				require.Less(s, status, 300, "%s %s: %s", r.method, r.path, text)
				if r.body != "" {
					drained(strings.Contains(r.body, "drain"))
				}
			} else {
				require.Equal(s, http.StatusNotFound, status, "%s %s: %s", r.method, r.path, text)
				require.NotContains(s, text, "worker-")
			}
		}
	}
	drained(false) // and the other account changed nothing
}

// criterionOverlaysRestrict is criterion 4: a pull request that asks for a region, a hardware type or an artifact source that a
// layer of policy does not allow is refused at its line, which names the layer; and so is a layer that allows more
// than the one above.
func (s *scene) criterionOverlaysRestrict() {
	const project, operated = "tenants/physics/projects/lattice/", "  operator_service_account: operator\n"
	files := map[string]string{
		project + "instances/far.yaml": strings.Replace(labtest.InstanceYAML("far", 1), "spec:\n",
			"spec:\n  regions: [moon]\n", 1) + operated,
		project + "instances/large.yaml": strings.Replace(labtest.InstanceYAML("large", 1), "gpu-a100-2", "gpu-a100-4",
			1) + operated,
		"tenants/physics/artifact-sources/elsewhere.yaml": "apiVersion: berth/v1\nkind: ArtifactSource\nmetadata: {name: " +
			"elsewhere}\nspec: {type: oci, host: registry.elsewhere.example}\n",
		project + "artifacts/solver.yaml": "apiVersion: berth/v1\nkind: Artifact\nmetadata: {name: solver}\nspec:\n  app: slurm\n  " +
			"source: elsewhere\n  reference: lab/solver\n" +
			"  media_type: application/vnd.oci.image.manifest.v1+json\n",
		project + "entitlements/slurm.yaml": strings.Replace(s.base[project+"entitlements/slurm.yaml"], "spec:\n",
			"spec:\n  policy_overrides: {allowed_skus: [cpu-small, gpu-a100-2], allowed_regions: [lab, moon]}\n", 1),
	}
	pull, err := s.propose("overlays", "more than policy allows", labtest.TenantOwner, gittest.Commit{Files: files})
	require.NoError(s, err)
	check, err := s.untilCheck(s.Context(), "overlays", "failure")
	require.NoError(s, err)
	found := strings.Join(check.annotations, "\n")
	for what, want := range map[string]string{
		"region":          `instances/far.yaml:6: spec.regions: policy does not allow moon, only lab (platform/policy/lab.yaml:7)`,
		"hardware type":   `instances/large.yaml:12: spec.roles.worker.sku: gpu-a100-4 is not allowed, only cpu-small, gpu-a100-2 (tenants/physics/projects/lattice/entitlements/slurm.yaml:6)`,
		"artifact source": `artifacts/solver.yaml:6: spec.source: it comes from ArtifactSource physics/elsewhere: registry.elsewhere.example is not allowed, only registry.lab.example (platform/policy/lab.yaml:12)`,
		"wider overlay":   `entitlements/slurm.yaml:6: spec.policy_overrides.allowed_regions[1]: allows moon, which is not allowed above: only lab (platform/policy/lab.yaml:7); a layer below can only narrow`,
	} {
		require.Contains(s, found, want, what)
	}
	require.NotContains(s, found, "break-glass", "the author has every permission: policy alone refuses")
	require.NoError(s, s.forge.ClosePull(pull))
}

// criterionIncidentIsTraceable is criterion 5, and the test of the runbook (requirement B9): from the error of a request, by its
// correlation id, to the log, the ledger of the host, the trace and the timeline, and from there to the change whose
// operation failed. The faults are provoked: slurmctld, then slurmd of a worker, cannot start.
func (s *scene) criterionIncidentIsTraceable() {
	ctx := s.Context()
	begun := time.Now()
	lap := func(what string) { s.Logf("%4.1f s  %s", time.Since(begun).Seconds(), what) }
	back := s.without("dev-lab-1", "slurmctld", s.controllerPID(labtest.Train))
	var refused apiError
	answered := make(chan error, 1)
	go func() {
		var err error
		refused, err = s.requestJob(ctx)
		answered <- err
	}()
	st := s.failed()
	lap("train has failed")
	// A host that accepts connections and never answers delays nobody: the trace ends.
	s.sshd("dev-gpu-4", "STOP")
	var text string
	s.eventually("a trace with the answers of the other hosts", func() string { // a busy one may be late
		if text = s.berthRead("trace", st.CorrelationID); !strings.Contains(text, "hosts     5 hosts asked, 1 did not answer") {
			return text
		}
		return ""
	})
	s.sshd("dev-gpu-4", "CONT")
	require.Regexp(s, `(?m)^unknown   dev-gpu-4: host dev-gpu-4: host unreachable: `, text)
	require.Regexp(s, `(?m)^host .* dev-lab-1 .*fault: `, text)
	lap("a host is silent")
	require.NoError(s, <-answered)
	require.Equal(s, "queue.unavailable", refused.Code)
	lap("the job is refused")
	printed := s.triage(s, refused.CorrelationID, instanceArgument(labtest.Train))
	sees(s, printed)
	lap("triage")
	for i, text := range printed[:3] {
		require.NotEmpty(s, text, "step %d", i+1)
	}
	require.NotContains(s, printed[1], st.CorrelationID, "the ledger's lines are those of the request")
	require.Contains(s, printed[4], "start service slurmctld", "the change's trace names the operation that failed")
	require.Contains(s, printed[4], st.FailureReason)
	back()
	s.ready(labtest.Train)
	lap("repaired")

	worker := member(s.statusOf(labtest.Train), "worker-0").Node
	back = s.without(worker, "slurmd", profile.WorkerPID)
	s.eventually("train has failed again", func() string {
		if st = s.statusOf(labtest.Train); condition(st, "Ready").Status == "True" || st.FailureReason == "" {
			return show(st)
		}
		return ""
	})
	lap("worker failed")
	printed = s.triage(s, st.CorrelationID, instanceArgument(labtest.Train))
	require.Regexp(s, `host .* `+worker+` .*start service slurmd.*fault: `, printed[1])
	require.Contains(s, printed[2], "commit ")
	lap("triage")
	back()
	s.ready(labtest.Train)
	lap("repaired")
	require.Contains(s, s.berthRead("trace", st.CorrelationID), "apps.instance.running")
}
