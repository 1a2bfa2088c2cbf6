package load

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
)

// A file on which the reader panics is a finding, and the next one is read.
func TestPanicAffectsOnlyItsFile(t *testing.T) {
	r, err := NewReader(labBackends(t), nil, nil)
	require.NoError(t, err)
	r.judges = make(chan *judge, 1)
	broken := &judge{defs: map[string]definition{}} // without a context it panics on use
	for _, kind := range kinds() {
		broken.defs[kind] = definition{}
	}
	r.judges <- broken
	const path = "tenants/physics/projects/lattice/instances/train.yaml"
	for i := range 2 {
		doc, err := r.Read(context.Background(), schema.File{Path: path, Mode: schema.ModePlain},
			func(int) ([]byte, bool, error) { return []byte(labFiles(t)[path]), false, nil })
		require.NoError(t, err)
		require.Equal(t, i == 1, doc.Valid())
		if i == 0 {
			require.Equal(t, "file.unreadable", doc.Findings[0].Code)
		}
	}
}

// A label with the name of a price does not count as a price.
func TestLabelsOfRateCardAreNoPrices(t *testing.T) {
	r, err := NewReader(labBackends(t), nil, nil)
	require.NoError(t, err)
	read := func(label, price string) *Document {
		data := "apiVersion: berth/v1\nkind: RateCard\nmetadata:\n  name: office\n  uid: rates-office\n" +
			"  labels: {" + label + "}\nspec:\n  currency: EUR\n  cpu_hour: " + price + "\n"
		doc, err := r.Read(context.Background(), schema.File{Path: "platform/rates/office.yaml", Mode: schema.ModePlain},
			func(int) ([]byte, bool, error) { return []byte(data), false, nil })
		require.NoError(t, err)
		return doc
	}
	for _, label := range []string{"per_hour: office", "by_day: 1 USD", "spec.price: office"} {
		require.Empty(t, read(label, "0.01 EUR").Findings, label)
	}
	findings := read("per_hour: office", "0.01 USD").Findings
	require.Len(t, findings, 1)
	require.Equal(t, "spec.cpu_hour", findings[0].Path)
}

// Repeated validation of a changing document does not grow the heap: definitions
// and caches are bounded. `make bench` prints the result for a hundred thousand
// validations.
func TestRepeatedValidationDoesNotGrowHeap(t *testing.T) {
	growth := heapGrowth(t, 500, 2_000)
	require.Less(t, growth, 4<<20)
}

// heapGrowth returns the growth of the heap, in bytes, over validations of one changing
// document, after some to warm up.
func heapGrowth(t testing.TB, warm, validations int) int {
	r, err := NewReader(labBackends(t), nil, nil)
	require.NoError(t, err)
	const path = "tenants/physics/projects/lattice/instances/train.yaml"
	content := labFiles(t)[path]
	n := 0
	validate := func(times int) {
		for range times {
			n++
			data := strings.Replace(content, "Training", fmt.Sprintf("Cluster %d", n), 1)
			doc, err := r.Read(context.Background(), schema.File{Path: path, Mode: schema.ModePlain},
				func(int) ([]byte, bool, error) { return []byte(data), false, nil })
			require.NoError(t, err)
			require.True(t, doc.Valid())
		}
	}
	heap := func() int {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	validate(warm)
	before := heap()
	validate(validations)
	return heap() - before
}

// BenchmarkHeapGrowth reports the heap growth of a hundred thousand validations.
func BenchmarkHeapGrowth(b *testing.B) {
	for b.Loop() {
		b.ReportMetric(float64(heapGrowth(b, 1_000, 100_000))/(1<<20), "MiB")
	}
}
