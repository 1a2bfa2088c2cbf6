package checksum_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/runtimes/checksum"
)

type sample struct {
	Name string `json:"name"`
	Text string `json:"text,omitempty"`
}

// Reading returns the written value, and other programs read the file as JSON. A text with a changed byte, or without its
// end, is damaged.
func TestOnlyWhatWasWrittenIsRead(t *testing.T) {
	want := sample{"a", "\"}\n\t\"sha256\": \""}
	raw, err := checksum.Encode(want)
	require.NoError(t, err)
	require.True(t, json.Valid(raw))
	var got sample
	require.NoError(t, checksum.Decode(raw, &got))
	require.Equal(t, want, got)
	for i := range raw {
		changed := append([]byte(nil), raw...)
		changed[i] ^= 1
		require.ErrorIs(t, checksum.Decode(changed, &got), checksum.ErrDamaged, "byte %d", i)
		require.ErrorIs(t, checksum.Decode(raw[:i], &got), checksum.ErrDamaged, "the first %d bytes", i)
	}
	require.ErrorIs(t, checksum.Decode(append(raw, '\n'), &got), checksum.ErrDamaged)
	require.ErrorIs(t, checksum.Decode([]byte(`{"name": "a"}`), &got), checksum.ErrDamaged)
}

// A value without a field has no place for a checksum.
func TestValueWithoutFieldIsRefused(t *testing.T) {
	for _, v := range []any{map[string]int{}, []int{1}, 1, nil} {
		_, err := checksum.Encode(v)
		require.Error(t, err, "%v", v)
	}
}
