package estate_test

import (
	"context"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func usage(t testing.TB) (u syscall.Rusage) {
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return u
}

// BenchmarkHostileCorpus reports the processor time of the dearest case and of half of them.
func BenchmarkHostileCorpus(b *testing.B) {
	cases := corpus(b)
	for b.Loop() {
		loader := newLoader(b)
		_, err := loader.Load(context.Background(), hostile{files: hostileBase(b)}.snapshot())
		require.NoError(b, err)
		var spent []float64
		for _, h := range cases {
			before := usage(b)
			_, err := loader.Load(context.Background(), h.snapshot())
			require.NoError(b, err)
			after := usage(b)
			spent = append(spent, float64(after.Utime.Nano()+after.Stime.Nano()-before.Utime.Nano()-before.Stime.Nano())/1e6)
		}
		slices.Sort(spent)
		b.ReportMetric(spent[len(spent)-1], "worst-ms")
		b.ReportMetric(spent[len(spent)/2], "median-ms")
	}
}
