package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"berth/runtimes/backends"
	"berth/schema"
	"berth/schema/audit"
	"berth/schema/load"
	"berth/webhooks"
	"berth/webhooks/api"
)

// campusWith loads examples/campus with some files put, or taken away by "".
func campusWith(t *testing.T, change map[string]string) *schema.Desired {
	files := map[string]string{}
	root := "../../examples/campus"
	require.NoError(t, filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		data, err := os.ReadFile(path)
		files[filepath.ToSlash(rel)] = string(data)
		return err
	}))
	for path, text := range change {
		if files[path] = text; text == "" {
			delete(files, path)
		}
	}
	loader, err := load.New(load.Options{Backends: backends.Definitions()})
	require.NoError(t, err)
	res, err := loader.Load(context.Background(), load.Files(files))
	require.NoError(t, err)
	return res.Desired
}

// What is switched off stays as it is in force: additions, changes and
// deletions are found in their own files, and nothing else is (A16).
func TestChangesAreGated(t *testing.T) {
	const (
		lattice  = "tenants/physics/projects/lattice/"
		genomes  = "tenants/biology/projects/genomes/"
		instance = "apiVersion: berth/v1\nkind: Instance\nmetadata: {name: more}\nspec: {app: slurm, version: 22-05, display_name: x, desired_state: stopped, roles: {worker: {count: 1}}}\n"
	)
	off := new(bool)
	before := campusWith(t, nil)
	after := campusWith(t, map[string]string{
		lattice + "instances/more.yaml":          instance,                                                                                                                                      // added
		lattice + "operations/drain-worker.yaml": "",                                                                                                                                            // taken away
		genomes + "entitlements/slurm.yaml":      "apiVersion: berth/v1\nkind: Entitlement\nmetadata: {name: slurm}\nspec: {enabled: true, policy_overrides: {max_instances_per_project: 1}}\n", // changed
		genomes + "project.yaml":                 "apiVersion: berth/v1\nkind: Project\nmetadata: {name: genomes}\nspec: {display_name: another}\n",                                             // not gated
	})
	files := func(f featureConfig, before, after *schema.Desired) (out []string) {
		for _, d := range f.gate(before, after) {
			require.Equal(t, "feature.disabled", d.Code)
			require.Equal(t, schema.SeverityError, d.Severity)
			out = append(out, d.File)
		}
		return out
	}
	require.Empty(t, files(featureConfig{}, before, after))
	require.Equal(t, []string{genomes + "entitlements/slurm.yaml"}, files(featureConfig{EntitlementChanges: off}, before, after))
	require.Equal(t, []string{lattice + "instances/more.yaml", lattice + "operations/drain-worker.yaml"}, files(featureConfig{InstanceChanges: off}, before, after))
	require.Empty(t, files(featureConfig{off, off}, after, after))
	require.NotEmpty(t, files(featureConfig{EntitlementChanges: off}, nil, after), "the first commit too")
}

// People's tokens are those their files hold now; a short, shared or missing
// one is told and not taken.
func TestPeoplesTokens(t *testing.T) {
	dir := t.TempDir()
	token := func(login, text string) apiToken {
		path := filepath.Join(dir, login)
		require.NoError(t, os.WriteFile(path, []byte(text+"\n"), 0o600))
		return apiToken{login, secret{File: path}}
	}
	long := strings.Repeat("ab", 16)
	p := &people{tokens: []apiToken{token("anna", long)}, log: slog.New(slog.DiscardHandler)}
	require.NoError(t, p.read(time.Now()))
	require.Len(t, p.now(), 1)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "anna"), []byte("short"), 0o600))
	p.at = time.Now().Add(time.Hour) // as if it were read in this moment
	require.Len(t, p.now(), 1, "not read again for each request")
	p.at = time.Now().Add(-time.Second)
	require.Empty(t, p.now(), "a second later it no longer counts")

	for want, tokens := range map[string][]apiToken{
		"shorter than 32":        {token("short", "short")},
		"have one token":         {token("one", long), token("other", long)},
		"api.tokens[0] of nadia": {{"nadia", secret{File: filepath.Join(dir, "nadia")}}},
	} {
		err := (&people{tokens: tokens}).read(time.Now())
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), long)
	}
}

// What berth token prints opens the API of that estate, over HTTP, through the
// mux of the daemon; a path is answered as it was sent.
func TestTokenCommand(t *testing.T) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	block, err := ssh.MarshalPrivateKey(private, "")
	require.NoError(t, err)
	key := filepath.Join(t.TempDir(), "id_ed25519")
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(block), 0o600))
	line, err := ssh.NewPublicKey(public)
	require.NoError(t, err)

	d := campusWith(t, map[string]string{
		"tenants/physics/projects/lattice/service-accounts/ci.yaml": "apiVersion: berth/v1\nkind: ServiceAccount\nmetadata: {name: ci}\nspec:\n  display_name: x\n  public_keys: [{id: 2026-11, key: \"" + strings.TrimSpace(string(ssh.MarshalAuthorizedKey(line))) + "\"}]\n  scopes: [apps.instance.read]\n  allowed_endpoints: [\"GET /api/v1/projects/{project_id}/app-instances\"]\n",
		"tenants/physics/projects/lattice/roles.yaml":               "apiVersion: berth/v1\nkind: RoleBinding\nmetadata: {name: roles}\nspec: {members: [{service_account: ci, role: service_account}]}\n",
	})
	log := slog.New(slog.DiscardHandler)
	handler, err := api.New(api.Options{
		Estate: "campus", Log: log, Audit: func(audit.Record) error { return nil },
		Source: func() (api.View, bool) {
			return api.View{Desired: d, Effective: &schema.Effective{}}, true
		},
	})
	require.NoError(t, err)
	server := httptest.NewServer(webhooks.Mux(webhooks.MuxOptions{API: handler, Ready: func() error { return nil }, Log: log}))
	defer server.Close()

	run := func(args ...string) (string, error) {
		cmd := newRoot()
		var out strings.Builder
		cmd.SetOut(&out)
		cmd.SetArgs(append([]string{"token", "--key", key, "--service-account", "physics.lattice/ci", "--key-id", "2026-11"}, args...))
		err := cmd.Execute()
		return strings.TrimSpace(out.String()), err
	}
	get := func(token, path string) (int, string) {
		r, err := http.NewRequest(http.MethodGet, server.URL+path, nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		res, err := server.Client().Do(r)
		require.NoError(t, err)
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return res.StatusCode, string(text)
	}
	token, err := run("--audience", "campus")
	require.NoError(t, err)
	status, text := get(token, "/api/v1/projects/physics.lattice/app-instances")
	require.Equal(t, http.StatusOK, status, text)
	require.Contains(t, text, `"app_slug":"slurm"`)
	status, text = get(token, "/api/v1//projects/<b>/../x")
	require.Equal(t, http.StatusNotFound, status)
	require.True(t, json.Valid([]byte(text)), text)
	status, _ = get("", "/health")
	require.Equal(t, http.StatusOK, status)

	asJSON, err := run("--audience", "campus", "-o", "json")
	require.NoError(t, err)
	var made tokenReport
	require.NoError(t, json.Unmarshal([]byte(asJSON), &made))
	require.Equal(t, "berth.token/v1", made.Format)
	status, _ = get(made.Token, "/api/v1/projects/physics.lattice/app-instances")
	require.Equal(t, http.StatusOK, status)

	other, err := run("--audience", "harbour")
	require.NoError(t, err)
	status, _ = get(other, "/api/v1/projects/physics.lattice/app-instances")
	require.Equal(t, http.StatusUnauthorized, status)

	_, err = run("--audience", "campus", "--ttl", "2h")
	require.ErrorContains(t, err, "at most 1h")
	_, err = run("--audience", "campus", "--service-account", "anna")
	require.ErrorContains(t, err, "names no service account")
	_, err = run("--audience", "campus", "--key", filepath.Join(t.TempDir(), "none"))
	require.ErrorContains(t, err, "private key")
}
