package authority

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
)

// A kind of document that nobody has thought about is changed by who gives
// roles, never by anybody.
func TestANewKindIsForNobodyElse(t *testing.T) {
	require.Equal(t, []Permission{RolesWrite}, diff{key: schema.Key{Kind: "New"}}.permissions())
}

// Every name in this package is of the table's, spelt as there.
func TestEveryRowHasNineCells(t *testing.T) {
	for _, r := range rows() {
		require.Regexp(t, `^[a-]{8}[a-z-]$`, r.cells, r.permission)
	}
}
