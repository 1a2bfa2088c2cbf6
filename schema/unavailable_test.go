package schema_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
)

func TestMaxUnavailable(t *testing.T) {
	for _, c := range []struct {
		text        string
		count, want int
	}{
		{`0`, 10, 1}, {`1`, 10, 1}, {`3`, 10, 3}, {`3`, 2, 3}, {`"25%"`, 10, 2}, {`"25%"`, 3, 1}, {`"100%"`, 4, 4}, {`"1%"`, 0, 1},
	} {
		var m schema.MaxUnavailable
		require.NoError(t, json.Unmarshal([]byte(c.text), &m))
		require.Equal(t, c.want, m.Of(c.count), c.text)
		raw, err := json.Marshal(m)
		require.NoError(t, err)
		require.JSONEq(t, c.text, string(raw))
	}
	for _, text := range []string{`"25"`, `"0%"`, `"101%"`, `"x%"`, `true`, `[]`, `1.5`} {
		require.Error(t, json.Unmarshal([]byte(text), new(schema.MaxUnavailable)), text)
	}
}
