package statusbranch

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"berth/reconciler/plan"
	"berth/schema"
)

// A status has the bytes that yaml.Marshal gives it, and any text is read back unchanged.
func TestStatusFilesAreThoseOfYAMLMarshal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "yes", "010", "1e3", "0x1f", "null", "~", "12:30",
			"2026-11-30", "a: b",
			"- a", "# a", "a\nb\n", " a", "a ", "\t", "é", "\u2028", "\x00", "<a>&"}))
		number := rapid.OneOf(rapid.SampledFrom([]any{0, 1, -1, 1.5, 1e6, 1e-7, 1 << 53, math.MaxInt64, math.MinInt64}),
			rapid.Map(rapid.Float64Range(-1e15, 1e15), func(n float64) any { return n }), rapid.Map(rapid.Int64(), func(n int64) any { return n }))
		state, err := json.Marshal(map[string]any{text.Draw(t, "key"): text.Draw(t, "text"), "n": number.Draw(t, "number"),
			"list": []any{}, "object": map[string]any{}, "null": nil, "deep": map[string]any{"10": true, "9": false}})
		require.NoError(t, err)
		status := plan.Status{Key: schema.InstanceKey("a", "b", "c"), RuntimeState: state}
		status.FailureReason, status.BegunOn, status.Attempt = text.Draw(t, "reason"), "2026-11-30", rapid.IntRange(0, 1<<40).Draw(t, "attempt")
		status.Retry = &plan.Retry{Next: time.Date(2026, 11, 30, 1, 2, 3, rapid.IntRange(0, 999_999_999).Draw(t, "ns"), time.UTC)}
		data, err := encodeStatus(status)
		require.NoError(t, err)
		require.JSONEq(t, jsonOf(t, status), readBack(t, data))
		// yaml.Marshal refuses U+007F, and makes a space of U+0085.
		if want, err := yaml.Marshal(status); err == nil && readBack(t, want) == readBack(t, data) {
			require.Equal(t, string(want), string(data))
		}
	})
}

func readBack(t *rapid.T, data []byte) string {
	var read plan.Status
	require.NoError(t, yaml.Unmarshal(data, &read))
	return jsonOf(t, read)
}

func jsonOf(t *rapid.T, v any) string {
	data, err := json.Marshal(v)
	require.NoError(t, err)
	return string(data)
}
