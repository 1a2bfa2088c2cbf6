package backends_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"berth/examples/await"
	"github.com/stretchr/testify/require"
)

// secondApp is an estate with the app of examples/lab-inference, without a scheduler, and a daemon of a
// program whose list has a second runtime.
type secondApp struct {
	*testing.T
	berth, estate, server string
}

const (
	personToken = "a-token-of-anna-that-is-long-enough"
	appInstance = "tenants/physics/projects/lattice/instances/answers.yaml"
	appVersion  = "platform/catalog/inference/2-40.yaml"
	appAccount  = "tenants/physics/projects/lattice/service-accounts/serve.yaml"
)

func newSecondApp(t *testing.T) *secondApp {
	s := &secondApp{T: t, berth: buildWithSecond(t, "berth"), estate: filepath.Join(t.TempDir(), "estate")}
	for _, from := range []string{"lab", "lab-inference"} {
		require.NoError(t, os.MkdirAll(s.estate, 0o755))
		command(t, ".", "cp", "-r", "../../examples/"+from+"/.", s.estate)
	}
	// of the scheduler
	command(t, s.estate, "rm", "-r", "tenants/physics/projects/lattice/instances/train.yaml", "tenants/biology/projects/genomes/instances")
	// The test makes a key for the account; nobody has the private key of the example.
	command(t, t.TempDir(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", s.estate+".key")
	public, err := os.ReadFile(s.estate + ".key.pub")
	require.NoError(t, err)
	account, err := os.ReadFile(filepath.Join(s.estate, appAccount))
	require.NoError(t, err)
	s.write(appAccount, regexp.MustCompile(`key: ssh-ed25519 \S+`).ReplaceAllString(string(account),
		"key: "+strings.Join(strings.Fields(string(public))[:2], " ")))
	require.NoError(t, os.WriteFile(s.estate+".token", []byte(personToken), 0o600))
	s.write("berth.yaml", `estate: lab
repository: {url: ., directory: .berth/cache}
authority: {trust_local_commits: true}
`+startHosts(t, s.estate)+`
listen: 127.0.0.1:0
poll: 300ms
interval: 300ms
flush_window: 100ms
api: {tokens: [{login: anna-lattice, token: {file: `+s.estate+`.token}}]}
`)
	s.write(".gitignore", ".berth\n")
	command(t, s.estate, "git", "init", "-q", "-b", "main")
	s.commit("estate")
	return s
}

func (s *secondApp) write(path, text string) {
	s.Helper()
	require.NoError(s, os.WriteFile(filepath.Join(s.estate, path), []byte(text), 0o600))
}

func (s *secondApp) commit(subject string) {
	s.Helper()
	command(s.T, s.estate, "git", "add", "-A")
	command(s.T, s.estate, "git", "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-q", "-m", subject)
}

// fails runs a command that must fail, and returns what it printed.
func (s *secondApp) fails(args ...string) string {
	s.Helper()
	cmd := exec.Command(s.berth, args...)
	cmd.Dir = s.estate
	cmd.Env = append(os.Environ(), "BERTH_SERVER="+s.server, "BERTH_TOKEN="+personToken)
	out, err := cmd.CombinedOutput()
	require.Error(s, err, "%s", out)
	return string(out)
}

// serve runs the daemon until the end of the test, on a port that the system chooses.
func (s *secondApp) serve() {
	s.Helper()
	log, err := os.Create(s.estate + ".log")
	require.NoError(s, err)
	cmd := exec.Command(s.berth, "serve", "-c", "berth.yaml")
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.estate, log, log
	require.NoError(s, cmd.Start())
	logged := func() string {
		text, err := os.ReadFile(log.Name())
		require.NoError(s, err)
		return string(text)
	}
	s.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		require.NoError(s, log.Close())
		if s.Failed() {
			s.Logf("the daemon:\n%s", logged())
		}
	})
	serving := regexp.MustCompile(`"msg":"serving","address":"([^"]+)"`)
	await.True(s, "the daemon serves", func() bool { return serving.MatchString(logged()) }, func() any { return logged() })
	s.server = "http://" + serving.FindStringSubmatch(logged())[1]
}

// get asks the API, and returns the status and the code of the error.
func (s *secondApp) get(method, path, token string) (status int, code string) {
	s.Helper()
	req, err := http.NewRequestWithContext(s.Context(), method, s.server+"/api/v1/projects/"+path,
		strings.NewReader(`{"script":"#!/bin/sh\ntrue\n"}`))
	require.NoError(s, err)
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", "k1")
	res, err := http.DefaultClient.Do(req)
	require.NoError(s, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(s, err)
	var e struct {
		Error struct {
			Code          string `json:"code"`
			CorrelationID string `json:"correlation_id"`
		} `json:"error"`
	}
	if res.StatusCode >= 300 {
		require.NoError(s, json.Unmarshal(body, &e), "%s", body)
		require.NotEmpty(s, e.Error.CorrelationID)
	}
	return res.StatusCode, e.Error.Code
}

func (s *secondApp) until(what, want string, args ...string) {
	s.Helper()
	var out []byte
	await.True(s, what, func() bool {
		cmd := exec.Command(s.berth, args...)
		cmd.Dir = s.estate
		out, _ = cmd.CombinedOutput()
		return strings.Contains(string(out), want)
	}, func() any { return string(out) })
}

// Requirement A17: the second reference app has no scheduler, passes the same check as the first, and runs by the
// same contracts. Neither its operator nor a version of a runtime that the program does not have can bypass
// them.
func TestSecondReferenceAppPassesTheSameCheck(t *testing.T) {
	s := newSecondApp(t)
	require.Contains(t, command(t, s.estate, s.berth, "validate", "."), "all valid")
	require.Contains(t, command(t, s.estate, s.berth, "onboard", "check", "inference"), "inference: 7 of 7 points hold")

	t.Run("no other way by a document", s.hasNoOtherWay)
	s.serve()
	s.until("the instance runs", "running", "status")
	const base = "physics.lattice/app-instances"
	status, _ := s.get("GET", base+"/answers", personToken)
	require.Equal(t, 200, status)
	// It has no queue, in the words of the contract.
	require.Contains(t, s.fails("queue", "list", "physics.lattice/answers"),
		"queue.denied: denied: Instance physics.lattice/answers has no queue: ray runs no jobs")
	status, code := s.get("POST", base+"/answers/queue/jobs", personToken)
	require.Equal(t, []any{422, "queue.denied"}, []any{status, code})

	token := strings.TrimSpace(command(t, s.estate, s.berth, "token", "--service-account", "physics.lattice/serve", "--key",
		s.estate+".key", "--key-id", "2026-11", "--audience", "lab"))
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{"GET", base, 200}, {"GET", base + "/answers", 200},
		{"POST", base + "/answers/queue/jobs", 403}, // not one of its endpoints
		{"GET", base + "/answers/nodes", 403},
		{"GET", "physics.lattice/entitlements", 404},  // hidden: the app does not require it
		{"GET", "biology.genomes/app-instances", 404}, // another project is hidden from it
		{"DELETE", base + "/answers", 405},            // a change is a pull request, for everybody
	} {
		status, code := s.get(c.method, c.path, token)
		require.Equal(t, c.status, status, "%s %s: %s", c.method, c.path, code)
	}

	command(t, s.estate, "rm", appInstance)
	s.commit("no more answers")
	s.until("the instance is deleted", "apps.instance.deleted", "events")
	events := command(t, s.estate, s.berth, "events")
	for _, want := range []string{"apps.instance.requested", "apps.instance.running", "apps.instance.deleting"} {
		require.Regexp(t, want+` +physics\.lattice/answers +[0-9a-f]+`, events, "each with its correlation id")
	}
}

// hasNoOtherWay checks that no change of a document leads past the contracts: each is an error, or a warning
// that names the line.
func (s *secondApp) hasNoOtherWay(t *testing.T) {
	for name, c := range map[string]struct{ file, old, text, want string }{
		"a runtime that the program does not have": {appVersion, "runtime_backend: ray", "runtime_backend: k8s",
			appInstance + `:7:12: error: spec.version: no runtime for k8s is built in`},
		"an operator of another project": {appInstance, "operator_service_account: serve", "operator_service_account: ci", "ref."},
		"an operator with more than the app requires": {appAccount, "scopes: [", "scopes: [scheduler.queue.submit, ",
			"grants nothing: the account operates"},
		"more GPUs than the entitlement gives": {appInstance, "count: 2", "count: 4", "policy.max_gpus_per_instance"},
		"a field of the scheduler": {appInstance, "  roles:", "  config: {partitions: [{name: main}]}\n  roles:",
			"spec.config.partitions: no such field"},
		"a configuration of its own runtime": {appInstance, "  roles:", "  config: {color: green}\n  roles:", "spec.config.color"},
	} {
		before, err := os.ReadFile(filepath.Join(s.estate, c.file))
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(before), c.old), name)
		s.write(c.file, strings.Replace(string(before), c.old, c.text, 1))
		out, _ := exec.Command(s.berth, "validate", s.estate).CombinedOutput()
		require.Contains(t, string(out), c.want, name)
		s.write(c.file, string(before))
	}
}
