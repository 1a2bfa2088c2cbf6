package estate_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
	"berth/schema/estate"
)

// Each valid document with a kind or a field without effect has one warning for each, at its line. No other document
// has one. An invalid document has its errors.
func TestFieldsWithoutEffectHaveWarnings(t *testing.T) {
	l := newLoader(t)
	files := campus(t)
	const invalid = "platform/queues/physics.yaml"
	files[invalid] = strings.Replace(files[invalid], "app: slurm", "ap: slurm", 1)
	r, err := l.Load(context.Background(), estate.Files(files))
	require.NoError(t, err)
	warned := map[string][]string{}
	for _, d := range r.WithoutEffect() {
		require.Equal(t, "kind.no-effect", d.Code)
		require.Equal(t, schema.SeverityWarning, d.Severity)
		require.Contains(t, r.WithoutEffectAt(d.File), d)
		require.Contains(t, d.Message, "is checked and has no effect in this version of Berth: so far ")
		name := d.Path[strings.LastIndexByte(d.Path, '.')+1:]
		require.Contains(t, strings.Split(files[d.File], "\n")[d.Line-1], name+":", "at its line")
		warned[d.File] = append(warned[d.File], d.Path)
	}
	kinds := map[schema.Kind]int{}
	for path, key := range r.Documents() {
		var want []string
		for _, n := range key.Kind.Info().NoEffect {
			if strings.Contains(files[path], strings.TrimPrefix(n.Field, "spec.")+":") {
				want = append(want, n.Field)
			}
		}
		require.Equal(t, want, warned[path], path)
		kinds[key.Kind] += len(warned[path])
	}
	require.Equal(t, []int{1, 1}, []int{kinds[schema.KindSite], kinds[schema.KindInstance]})
	require.Nil(t, warned[invalid])
}
