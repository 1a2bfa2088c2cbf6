package estate_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
	"berth/schema/estate"
)

// Each valid document of a kind without effect has a warning. No other document has one. An
// invalid document has its errors.
func TestKindsWithoutEffectHaveWarnings(t *testing.T) {
	l := newLoader(t)
	files := campus(t)
	const invalid = "platform/queues/physics.yaml"
	files[invalid] = strings.Replace(files[invalid], "app: slurm", "ap: slurm", 1)
	r, err := l.Load(context.Background(), estate.Files(files))
	require.NoError(t, err)
	warned, kinds := map[string]bool{}, map[schema.Kind]int{}
	for _, d := range r.WithoutEffect() {
		require.Equal(t, "kind.no-effect", d.Code)
		require.Equal(t, schema.SeverityWarning, d.Severity)
		require.Equal(t, &d, r.WithoutEffectAt(d.File))
		warned[d.File] = true
	}
	for path, key := range r.Documents() {
		lacks := key.Kind.Info().NoEffect != ""
		require.Equal(t, lacks && path != invalid, warned[path], path)
		if warned[path] {
			kinds[key.Kind]++
		}
	}
	require.Equal(t, map[schema.Kind]int{
		schema.KindHookRule: 2,
	}, kinds)
}
