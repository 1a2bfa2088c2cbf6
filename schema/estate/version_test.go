package estate_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
	"berth/schema/estate"
)

// Of two documents for one version of an app, the one in force stays, for any
// names. Two that are already in force both stay, and no instance stops.
func TestOneDocumentForOneVersionOfAnApp(t *testing.T) {
	l := newLoader(t)
	const first, last = "platform/catalog/slurm/21-00.yaml", "platform/catalog/slurm/99-00.yaml"
	copyAs := func(name string) string { return strings.Replace(lab(t)[version], "name: 22-05", "name: "+name, 1) }
	for _, file := range []string{first, last} {
		name := strings.TrimSuffix(file[len("platform/catalog/slurm/"):], ".yaml")
		both := with(t, map[string]string{file: copyAs(name)})
		f := inForce(t, l, both, lab(t))
		require.Equal(t, "invalid "+file+": not there\n", told(f))
		require.Contains(t, f.Held[0].Message, "22-05 is version 22.05.8 of slurm, too (platform/catalog/slurm/22-05.yaml:")

		// A new estate takes the first by name and the documents that it needs.
		f = inForce(t, l, both, nil)
		require.NotEmpty(t, told(f))

		// An estate in which an earlier Berth brought both into force continues.
		f = inForce(t, l, with(t, map[string]string{file: copyAs(name), "README.md": "x"}), both)
		require.Empty(t, told(f))
		require.Len(t, f.Result.Desired.Platform.Versions["slurm"], 2)
		require.Len(t, f.Result.Desired.Tenants, 2)
		r, err := l.Load(t.Context(), estate.Files(both))
		require.NoError(t, err)
		require.Len(t, r.Diagnostics, 1)
		require.Equal(t, "conflict.version", r.Diagnostics[0].Code)
	}
}

// A version that its runtime does not know is refused at its place. One that is only a
// step of an upgrade gets a warning.
func TestVersionIsOneOfTheRuntime(t *testing.T) {
	l, err := estate.New(estate.Options{Backends: testBackends(t), Releases: map[string]schema.Releases{
		"slurm": {{Series: "22.05"}, {Series: "23.11", From: []string{"22.05"}, Step: true}, {Series: "24.11", From: []string{"23.11"}}},
	}})
	require.NoError(t, err)
	const step = "warning: spec.version: Berth does not run 23.11.4: an instance only passes through it in an upgrade between 22.05, " +
		"24.11 [ref.upgrade-step]"
	for declared, want := range map[string]string{
		"22.05.8": "", `"24.11"`: "", "23.11.4": step,
		"22.5.8": "error: spec.version: 22.5.8 is no version that the runtime slurm knows: want one of 22.05, 24.11, or a maintenance " +
			"release of one, such as 22.05.1 [schema.release]",
		"25.05.1": "error: spec.version: 25.05.1 is no version that the runtime slurm knows: want one of 22.05, 24.11, or a maintenance " +
			"release of one, such as 22.05.1 [schema.release]",
	} {
		files := with(t, map[string]string{version: strings.Replace(lab(t)[version], "22.05.8", declared, 1)})
		r, err := l.Load(t.Context(), estate.Files(files))
		require.NoError(t, err)
		if want == "" {
			require.Empty(t, r.Diagnostics, declared)
			require.NotEmpty(t, r.Desired.Version("", "slurm", "22-05").Release().Series)
			continue
		}
		require.Len(t, r.Diagnostics, 1, declared)
		require.Equal(t, version+":7:12: "+want, r.Diagnostics[0].String())
	}

	// Another backend knows no versions.
	files := with(t, map[string]string{version: strings.NewReplacer("22.05.8", "7.x", "runtime_backend: slurm",
		"runtime_backend: bare_metal").Replace(lab(t)[version])})
	r, err := l.Load(t.Context(), estate.Files(files))
	require.NoError(t, err)
	for _, d := range r.Diagnostics {
		require.NotEqual(t, "schema.release", d.Code)
	}
}
