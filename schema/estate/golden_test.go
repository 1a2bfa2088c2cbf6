package estate_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"berth/schema"
	"berth/schema/estate"
)

var update = flag.Bool("update", false, "write what is found into testdata")

// lab is examples/lab as a new map.
func lab(t testing.TB) map[string]string { return estateFiles(t, "../../examples/lab") }

// campus is examples/campus, which has every kind but Pause.
func campus(t testing.TB) map[string]string { return estateFiles(t, "../../examples/campus") }

func estateFiles(t testing.TB, root string) map[string]string {
	t.Helper()
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(name string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		rel, _ := filepath.Rel(root, name)
		files[filepath.ToSlash(rel)] = string(data)
		return err
	}))
	return files
}

// render formats a Result for the golden files: the findings, and the documents that are
// out without a finding.
func render(r *estate.Result) string {
	var b strings.Builder
	wrong := map[string]bool{}
	for _, d := range r.Diagnostics {
		fmt.Fprintln(&b, d)
		wrong[d.File] = true
	}
	for _, file := range sorted(r.Needs) {
		if !wrong[file] {
			fmt.Fprintf(&b, "%s needs %s\n", file, strings.Join(r.Needs[file], ", "))
		}
	}
	return b.String()
}

// TestGolden runs each case of testdata/*.txtar over examples/lab, and of
// testdata/campus/*.txtar over examples/campus.
func TestGolden(t *testing.T) {
	golden(t, "testdata/*.txtar", lab)
	golden(t, "testdata/campus/*.txtar", campus)
}

// goldenCases reads an archive. The first directory of a name is the case. Its file
// "want" has the expected output, "edit" has lines of PATH: OLD => NEW. Each other file
// is added to the estate, or removed if it is empty.
func goldenCases(t testing.TB, archive *txtar.Archive, base func(testing.TB) map[string]string) map[string]map[string]string {
	cases := map[string]map[string]string{}
	for _, f := range archive.Files {
		c, path, _ := strings.Cut(f.Name, "/")
		if cases[c] == nil {
			cases[c] = base(t)
		}
		switch {
		case path == "want":
		case path == "edit":
			for line := range strings.Lines(string(f.Data)) {
				file, change, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
				before, after, ok2 := strings.Cut(change, " => ")
				before = strings.ReplaceAll(before, `\n`, "\n")
				require.True(t, ok && ok2 && strings.Contains(cases[c][file], before), "%s: %s", c, line)
				cases[c][file] = strings.Replace(cases[c][file], before, strings.ReplaceAll(after, `\n`, "\n"), 1)
			}
		case len(f.Data) == 0:
			delete(cases[c], path)
		default:
			cases[c][path] = string(f.Data)
		}
	}
	return cases
}

func golden(t *testing.T, pattern string, base func(testing.TB) map[string]string) {
	archives, err := filepath.Glob(pattern)
	require.NoError(t, err)
	require.NotEmpty(t, archives)
	loader := newLoader(t)
	for _, name := range archives {
		archive, err := txtar.ParseFile(name)
		require.NoError(t, err)
		cases := goldenCases(t, archive, base)
		for i, f := range archive.Files {
			c, isWant := strings.CutSuffix(f.Name, "/want")
			if !isWant {
				continue
			}
			t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar")+"/"+c, func(t *testing.T) {
				r, err := loader.Load(context.Background(), estate.Files(cases[c]))
				require.NoError(t, err)
				got := render(r)
				if *update {
					archive.Files[i].Data = []byte(got)
				} else {
					require.Equal(t, string(f.Data), got)
				}
				invariants(t, loader, cases[c], r)
			})
		}
		if *update {
			require.NoError(t, os.WriteFile(name, txtar.Format(archive), 0o644))
		}
	}
}

// invariants hold for any result.
func invariants(t *testing.T, loader *estate.Loader, files map[string]string, r *estate.Result) {
	t.Helper()
	again, err := loader.Load(context.Background(), estate.Files(files))
	require.NoError(t, err)
	require.Equal(t, render(r), render(again), "what is remembered reads the same")
	require.Same(t, r.Desired.Platform, again.Desired.Platform, "unchanged values are shared")

	for _, d := range r.Diagnostics {
		require.Positive(t, d.Line, d)
		require.Positive(t, d.Column, d)
		require.NotEmpty(t, d.Message, d)
		if content, ok := files[d.File]; ok {
			lines := strings.Split(content, "\n")
			require.LessOrEqual(t, d.Line, len(lines), d)
		}
	}
	// A finding in physics does not affect biology, and the reverse.
	for tenant, key := range map[string]schema.Key{
		"biology": schema.InstanceKey("biology", "genomes", "assembly"),
		"physics": schema.InstanceKey("physics", "lattice", "train"),
	} {
		touched := false
		for _, d := range r.Diagnostics {
			for _, near := range []string{"tenants/" + tenant + "/", "platform/catalog/slurm", "platform/shared-runtimes/",
				"platform/artifact-sources/"} {
				touched = touched || d.Severity == schema.SeverityError && strings.HasPrefix(d.File, near)
			}
			touched = touched || strings.Contains(files[d.File], "reserved_for: "+tenant)
		}
		if !touched {
			for file := range r.Needs {
				require.False(t, strings.HasPrefix(file, "tenants/"+tenant+"/"), file)
			}
			require.NotNil(t, r.Desired.Instance(key), key)
		}
	}
}
