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

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"berth/cmd/internal/localestate"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/audit"
	"berth/schema/estate"
	"berth/webhooks"
	"berth/webhooks/api"
)

// The output of berth token gives access to the API of that estate over HTTP,
// through the daemon's mux. The mux does not rewrite a path.
func TestTokenCommand(t *testing.T) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	block, err := ssh.MarshalPrivateKey(private, "")
	require.NoError(t, err)
	key := filepath.Join(t.TempDir(), "id_ed25519")
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(block), 0o600))
	line, err := ssh.NewPublicKey(public)
	require.NoError(t, err)

	d := campusEstate(t, map[string]string{
		"tenants/physics/projects/lattice/service-accounts/ci.yaml": "apiVersion: berth/v1\nkind: ServiceAccount\nmetadata: {name: " +
			"ci}\nspec:\n  display_name: x\n  public_keys: [{id: 2026-11, key: \"" +
			strings.TrimSpace(string(ssh.MarshalAuthorizedKey(line))) +
			"\"}]\n  scopes: [apps.instance.read, scheduler.instance.read]\n  allowed_endpoints: [\"GET " +
			"/api/v1/projects/{project_id}/app-instances\"]\n",
		"tenants/physics/projects/lattice/roles.yaml": "apiVersion: berth/v1\nkind: RoleBinding\nmetadata: {name: roles}\nspec: " +
			"{members: [{service_account: ci, role: service_account}]}\n",
	})
	log := slog.New(slog.DiscardHandler)
	handler, err := api.New(api.Options{
		Estate: "campus", Log: log, Audit: func(audit.Record) error { return nil },
		Source: func() (plan.View, bool) {
			return plan.View{Desired: d, Effective: &schema.Effective{}}, true
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
	require.ErrorContains(t, err, "is not a service account")
	_, err = run("--audience", "campus", "--key", filepath.Join(t.TempDir(), "none"))
	require.ErrorContains(t, err, "private key")
}

// campusEstate loads examples/campus with some files put, or taken away by "".
func campusEstate(t *testing.T, change map[string]string) *schema.Desired {
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
	loader, err := localestate.NewLoader()
	require.NoError(t, err)
	res, err := loader.Load(context.Background(), estate.Files(files))
	require.NoError(t, err)
	return res.Desired
}
