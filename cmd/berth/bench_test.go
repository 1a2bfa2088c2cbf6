package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/examples/large"
)

// BenchmarkValidate runs berth validate on an estate of ten thousand documents, one
// process each time. The peer is cue vet over the same files with the same
// definitions, one run for each kind, because a run takes one definition. Both have
// one core; the figure is their CPU time.
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
	cue, err := exec.Command("go", "tool", "-n", "cue").Output() // builds the version in go.mod
	require.NoError(b, err)
	for kind, names := range kinds {
		slices.Sort(names)
		programs["cue"] = append(programs["cue"],
			slices.Concat([]string{strings.TrimSpace(string(cue)), "vet", "-c", "-d", "#" + kind}, definitions, names))
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
