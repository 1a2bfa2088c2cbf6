package onboard_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/runtimes/backends"
	"berth/schema"
	"berth/schema/estate"
	"berth/schema/onboard"
)

// campus loads examples/campus with changed files.
func campus(t *testing.T, change map[string]string) *schema.Desired {
	t.Helper()
	files := map[string]string{}
	const root = "../../examples/campus"
	require.NoError(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		rel, _ := filepath.Rel(root, path)
		files[filepath.ToSlash(rel)] = string(data)
		return err
	}))
	for path, text := range change {
		files[path] = text
	}
	l, err := estate.New(estate.Options{Backends: backends.Definitions(), Releases: backends.Releases()})
	require.NoError(t, err)
	r, err := l.Load(context.Background(), estate.Files(files))
	require.NoError(t, err)
	return r.Desired
}

const (
	app     = "platform/catalog/slurm/app.yaml"
	version = "platform/catalog/slurm/22-05.yaml"
)

func ready(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../examples/campus/" + app)
	require.NoError(t, err)
	return map[string]string{app: string(text) +
		"  runbook: https://wiki.example.org/slurm\n  requires: {permissions: [apps.instance.read]}\n"}
}

// The seven points of SPA: all hold for a complete app, and each fails alone without what it needs (B7).
func TestEachPointNeedsItsEvidence(t *testing.T) {
	points := checked(t, campus(t, ready(t)), "slurm", backends.Names())
	require.Len(t, points, 7)
	for i, p := range points {
		require.Equal(t, i+1, p.Number)
		require.True(t, p.Holds, "%+v", p)
		require.NotEmpty(t, p.Evidence, p.Name)
	}
	train, err := os.ReadFile("../../examples/campus/tenants/physics/projects/lattice/instances/train.yaml")
	require.NoError(t, err)
	text, err := os.ReadFile("../../examples/campus/" + version)
	require.NoError(t, err)
	for number, change := range map[int]map[string]string{
		1: {app: strings.Replace(ready(t)[app], "runbook:", "status: disabled\n  runbook:", 1)},
		2: {app: strings.Replace(ready(t)[app], "requires: {permissions: [apps.instance.read]}", "requires: {}", 1)},
		7: {app: strings.Replace(ready(t)[app], "  runbook: https://wiki.example.org/slurm\n", "", 1)},
	} {
		with := ready(t)
		for path, text := range change {
			with[path] = text
		}
		points := checked(t, campus(t, with), "slurm", backends.Names())
		for _, p := range points {
			require.Equal(t, p.Number != number, p.Holds, "without what point %d needs: %+v", number, p)
		}
	}
	failing := func(change map[string]string, backends []string) (numbers []int) {
		with := ready(t)
		for path, text := range change {
			with[path] = text
		}
		points := checked(t, campus(t, with), "slurm", backends)
		for _, p := range points {
			if !p.Holds {
				require.NotEmpty(t, p.Missing)
				numbers = append(numbers, p.Number)
			}
		}
		return numbers
	}
	require.Equal(t, []int{1}, failing(nil, []string{"ray"}), "a backend that Berth does not have")
	require.Nil(t, failing(map[string]string{"tenants/physics/projects/lattice/instances/train.yaml": strings.Replace(string(train),
		"  operator_service_account: ci\n", "", 1)}, backends.Names()), "the operator of the shared runtime is an operator too")
	second := strings.NewReplacer("name: 22-05", "name: next", "version: 22.05.8", "version: \"22.05\"").Replace(string(text))
	require.NotEqual(t, string(text), second)
	require.Equal(t, []int{6}, failing(map[string]string{"platform/catalog/slurm/next.yaml": second}, backends.Names()),
		"two versions without a way")
	require.Empty(t, onboard.Apps(campus(t, nil), "", "nothing"))
}

// checked returns the points of the only app with a slug.
func checked(t *testing.T, d *schema.Desired, slug string, backends []string) []onboard.Point {
	t.Helper()
	apps := onboard.Apps(d, "", slug)
	require.Len(t, apps, 1)
	return onboard.Check(d, nil, apps[0], backends)
}

// A tenant's own app is judged by the projects of that tenant, and needs an admission (F9).
func TestOwnAppIsCheckedInItsTenant(t *testing.T) {
	const admission = "platform/admissions/physics/beamline.yaml"
	d := campus(t, nil)
	require.Len(t, onboard.Apps(d, "physics", "beamline"), 1)
	require.Empty(t, onboard.Apps(d, "biology", "beamline"))
	require.Empty(t, onboard.Apps(d, "physics", "slurm"), "the platform's")
	first := checked(t, d, "beamline", backends.Names())[0]
	require.True(t, first.Holds, "%+v", first)
	require.Contains(t, first.Evidence, admission+":5: admitted")
	first = checked(t, campus(t, map[string]string{admission: ""}), "beamline", backends.Names())[0]
	require.Contains(t, first.Missing, "ask a user with apps.catalog.admit for "+admission)
}
