package daemon

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/runtimes/backends"
	"berth/schema"
	schemaestate "berth/schema/estate"
	"berth/webhooks/secret"
)

// campusWith loads examples/campus with some files put, or taken away by "".
func campusWith(t *testing.T, change map[string]string) *schema.Desired {
	files := map[string]string{}
	root := "../../../examples/campus"
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
	loader, err := schemaestate.New(schemaestate.Options{Backends: backends.Definitions(), Releases: backends.Releases()})
	require.NoError(t, err)
	res, err := loader.Load(context.Background(), schemaestate.Files(files))
	require.NoError(t, err)
	return res.Desired
}

// Changes of a switched-off feature are held. Additions, changes and deletions
// are found by their files; other documents are not affected (A16).
func TestSwitchedOffChangesAreHeld(t *testing.T) {
	const (
		lattice  = "tenants/physics/projects/lattice/"
		genomes  = "tenants/biology/projects/genomes/"
		instance = "apiVersion: berth/v1\nkind: Instance\nmetadata: {name: more}\nspec: {app: slurm, version: 22-05, display_name: x, " +
			"desired_state: stopped, roles: {worker: {count: 1}}}\n"
	)
	off := new(bool)
	before := campusWith(t, nil)
	after := campusWith(t, map[string]string{
		// added
		lattice + "instances/more.yaml": instance,
		// taken away
		lattice + "operations/drain-worker.yaml": "",
		// changed
		genomes + "entitlements/slurm.yaml": "apiVersion: berth/v1\nkind: Entitlement\nmetadata: {name: slurm}\nspec: {enabled: true, " +
			"policy_overrides: {max_instances_per_project: 1}}\n",
		// not gated
		genomes + "project.yaml": "apiVersion: berth/v1\nkind: Project\nmetadata: {name: genomes}\nspec: {display_name: another}\n",
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
	require.Equal(t, []string{lattice + "instances/more.yaml", lattice + "operations/drain-worker.yaml"},
		files(featureConfig{InstanceChanges: off}, before, after))
	require.Empty(t, files(featureConfig{off, off}, after, after))
	require.NotEmpty(t, files(featureConfig{EntitlementChanges: off}, nil, after), "the first commit too")
}

// The tokens of users are the current content of their files. A short, shared
// or missing token is reported and refused.
func TestPersonTokens(t *testing.T) {
	dir := t.TempDir()
	token := func(login, text string) apiToken {
		path := filepath.Join(dir, login)
		require.NoError(t, os.WriteFile(path, []byte(text+"\n"), 0o600))
		return apiToken{login, secret.Ref{File: path}}
	}
	long := strings.Repeat("ab", 16)
	p := &personTokens{tokens: []apiToken{token("anna", long)}, log: slog.New(slog.DiscardHandler)}
	require.NoError(t, p.read(time.Now()))
	require.Len(t, p.now(), 1)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "anna"), []byte("short"), 0o600))
	p.at = time.Now().Add(time.Hour) // as if it were read in this moment
	require.Len(t, p.now(), 1, "not read again for each request")
	p.at = time.Now().Add(-time.Second)
	require.Empty(t, p.now(), "a second later it no longer counts")

	for want, tokens := range map[string][]apiToken{
		"shorter than 32":        {token("short", "short")},
		"have the same token":    {token("one", long), token("other", long)},
		"api.tokens[0] of nadia": {{"nadia", secret.Ref{File: filepath.Join(dir, "nadia")}}},
	} {
		err := (&personTokens{tokens: tokens}).read(time.Now())
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), long)
	}
}
