package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/examples"
)

// BenchmarkValidate checks a whole estate of a thousand instances: documents,
// what they say of each other, and policy; a process each time, as a pull
// request's workflow does. The peer is `cue vet` over the instances alone, with
// the same definitions, where the program is there.
func BenchmarkValidate(b *testing.B) {
	dir, instances, documents := largeEstate(b)
	definitions, err := filepath.Glob("../../schema/cue/*.cue")
	require.NoError(b, err)
	programs := map[string][]string{"berth": {"berth", "validate", dir}}
	if cue, err := exec.LookPath("cue"); err == nil {
		programs["cue"] = slices.Concat([]string{cue, "vet", "-c", "-d", "#Instance"}, definitions, instances)
	}
	spent := map[string][]time.Duration{}
	for b.Loop() {
		for range 5 {
			for name, argv := range programs {
				cmd := exec.Command(argv[0], argv[1:]...)
				var out bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &out
				start := time.Now()
				require.NoError(b, cmd.Run(), out.String())
				spent[name] = append(spent[name], time.Since(start))
			}
		}
	}
	for name, ds := range spent {
		slices.Sort(ds)
		b.ReportMetric(float64(ds[len(ds)/2].Milliseconds()), name+"-ms")
	}
	b.ReportMetric(float64(documents), "berth-documents")
	b.ReportMetric(float64(len(instances)), "cue-documents")
}

// largeEstate is the lab with many more tenants in it.
func largeEstate(b *testing.B) (dir string, instances []string, documents int) {
	b.Helper()
	dir = b.TempDir()
	put := func(name, content string) {
		documents++
		file := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(b, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(b, os.WriteFile(file, []byte(content), 0o600))
		if path.Base(path.Dir(name)) == "instances" {
			instances = append(instances, file)
		}
	}
	const project = "tenants/physics/projects/lattice/"
	require.NoError(b, fs.WalkDir(examples.Lab(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := fs.ReadFile(examples.Lab(), name)
		if err != nil {
			return err
		}
		content := string(data)
		put(name, content)
		rest, of := strings.CutPrefix(name, project)
		switch {
		case name == "tenants/physics/tenant.yaml":
			for t := range 50 {
				put(fmt.Sprintf("tenants/t%d/tenant.yaml", t), strings.Replace(content, "name: physics", fmt.Sprintf("name: t%d", t), 1))
			}
		case of && !strings.HasPrefix(rest, "roles"):
			for i := range 350 {
				at := fmt.Sprintf("tenants/t%d/projects/p%d/", i%50, i)
				switch rest {
				case "instances/train.yaml":
					for n := range 3 {
						put(fmt.Sprintf("%sinstances/i%d.yaml", at, n), strings.Replace(content, "name: train", fmt.Sprintf("name: i%d", n), 1))
					}
				default:
					put(at+rest, strings.Replace(content, "name: lattice", fmt.Sprintf("name: p%d", i), 1))
				}
			}
		}
		return nil
	}))
	return dir, instances, documents
}
