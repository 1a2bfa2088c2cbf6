package status

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// counting counts how often it is encoded.
type counting struct{ count *int }

func (c counting) MarshalJSON() ([]byte, error) {
	*c.count++
	return []byte("1"), nil
}

// A status that stays the same is compared and not encoded; different values with the same JSON are equal.
func TestEqualJSONEncodesOnlyDifferentValues(t *testing.T) {
	t.Parallel()
	type pair struct {
		C counting
		L []int
	}
	count := 0
	c := counting{&count}
	require.True(t, EqualJSON(&pair{C: c, L: []int{1}}, &pair{C: c, L: []int{1}}))
	require.Zero(t, count)
	require.False(t, EqualJSON(&pair{C: c, L: []int{1}}, &pair{C: c, L: []int{2}}))
	require.Equal(t, 2, count)
	require.True(t, EqualJSON(map[string]int{"a": 1}, struct {
		A int `json:"a"`
	}{1}))
}
