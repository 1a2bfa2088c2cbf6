package schema_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
)

// An amount with its currency is the same price as its number of millionths, to the last digit.
func TestPriceIsAnAmountOrMillionths(t *testing.T) {
	for text, want := range map[string]schema.Price{
		"0": 0, "10000": 10000, `"0.01 EUR"`: 10000, `"1 EUR"`: 1000000, `"0.000001 EUR"`: 1, `"2.4 EUR"`: 2400000,
		`"999999.999999 EUR"`: 999999999999,
	} {
		var p schema.Price
		require.NoError(t, json.Unmarshal([]byte(text), &p), text)
		require.Equal(t, want, p, text)
	}
	for _, text := range []string{`"EUR"`, `"0.0000001 EUR"`, `"1,5 EUR"`, "1.5"} {
		require.Error(t, json.Unmarshal([]byte(text), new(schema.Price)), text)
	}
}
