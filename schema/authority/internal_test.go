package authority

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
)

// A kind without a rule needs the permission to give roles.
func TestUnknownKindNeedsRolesWrite(t *testing.T) {
	require.Equal(t, []Permission{RolesWrite}, diff{key: schema.Key{Kind: "New"}}.permissions())
}

// Every name in this package is in the table with the same spelling.
func TestEveryRowHasNineCells(t *testing.T) {
	for r := range rows() {
		require.Regexp(t, `^[a-]{8}[a-z-]$`, r.cells, r.permission)
	}
}
