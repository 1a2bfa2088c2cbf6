package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/examples/large"
)

// BenchmarkValidate checks an estate of ten thousand documents: each by itself,
// what they say of each other, and policy; a process each time, as a pull
// request's workflow does. The peer, where the program is there, is `cue vet`
// over the same files with the same definitions, a run for each kind, as one
// definition serves them all. Both have one core; what counts is the time they
// had it.
func BenchmarkValidate(b *testing.B) {
	dir := b.TempDir()
	files := large.Estate(10_000)
	kinds := map[string][]string{}
	kind := regexp.MustCompile(`(?m)^kind: (\w+)$`)
	for name, content := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(b, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(b, os.WriteFile(file, []byte(content), 0o600))
		of := kind.FindStringSubmatch(content)[1]
		kinds[of] = append(kinds[of], name)
	}
	definitions, err := filepath.Glob("../../schema/cue/*.cue")
	require.NoError(b, err)
	for i := range definitions {
		definitions[i], err = filepath.Abs(definitions[i])
		require.NoError(b, err)
	}
	programs := map[string][][]string{"berth": {{"berth", "validate", dir}}}
	if cue, err := exec.LookPath("cue"); err == nil {
		for kind, names := range kinds {
			slices.Sort(names)
			programs["cue"] = append(programs["cue"], slices.Concat([]string{cue, "vet", "-c", "-d", "#" + kind}, definitions, names))
		}
	}
	spent := map[string][]time.Duration{}
	for b.Loop() {
		for range 3 {
			for name, runs := range programs {
				var sum time.Duration
				for _, argv := range runs {
					cmd := exec.Command(argv[0], argv[1:]...)
					cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOMAXPROCS=1")
					var out bytes.Buffer
					cmd.Stdout, cmd.Stderr = &out, &out
					require.NoError(b, cmd.Run(), fmt.Sprintf("%s: %.500s", argv[0], out.String()))
					sum += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
				}
				spent[name] = append(spent[name], sum)
			}
		}
	}
	for name, ds := range spent {
		slices.Sort(ds)
		b.ReportMetric(float64(ds[len(ds)/2].Milliseconds()), name+"-ms")
	}
	b.ReportMetric(float64(len(files)), "documents")
}
