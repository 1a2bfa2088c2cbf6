//go:build long

package estate_test

import (
	"bytes"
	"context"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema/estate"
)

// allocated returns the bytes that this process has allocated so far, freed ones included:
// a measure of work that does not depend on the machine.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

func repeat(format string, n int) string {
	var b bytes.Buffer
	for i := range n {
		b.WriteString(strings.ReplaceAll(format, "%d", string(rune('a'+i%26))+strings.Repeat("x", i/26%20)+string(rune('a'+i/520%26))))
	}
	return b.String()
}

// The most expensive hostile files of the largest size are cheap to read.
func TestLongHostileFilesAreCheap(t *testing.T) {
	head := "apiVersion: berth/v1\nkind: Instance\nmetadata: {name: train}\nspec:\n  app: slurm\n  version: 22-05\n  display_name: T\n"
	for name, content := range map[string]string{
		"a wide mapping":    head + "  roles: {" + repeat("r%d: {count: 1}, ", 1900) + "}\n",
		"a wide list":       head + "  regions: [" + strings.Repeat("a, ", 7_000) + "]\n",
		"too wide a list":   head + "  regions: [" + strings.Repeat("a, ", 18_000) + "]\n",
		"a wide config":     head + "  config: {" + repeat("k%d: 1, ", 3600) + "}\n",
		"many unknown keys": head + repeat("  k%d: 1\n", 3500),
		"one long key":      head + "  " + strings.Repeat("k", 60_000) + ": 1\n",
		"many open quotes":  head + strings.Repeat("  a: \"\n", 8000),
	} {
		t.Run(name, func(t *testing.T) {
			require.LessOrEqual(t, len(content), 64<<10)
			files := lab(t)
			files[trainFile] = content
			l := newLoader(t)
			before := allocated()
			r, err := l.Load(context.Background(), estate.Files(files))
			require.NoError(t, err)
			used := allocated() - before
			t.Logf("%d MiB, %d findings", used>>20, len(r.Diagnostics))
			require.Less(t, used, uint64(512<<20))
			require.LessOrEqual(t, len(r.Diagnostics), 26)
			if name == "too wide a list" {
				require.Equal(t, "yaml.nodes", r.Diagnostics[0].Code)
			}
			if name == "many unknown keys" {
				require.Equal(t, "file.more", r.Diagnostics[25].Code)
			}
		})
	}
}
