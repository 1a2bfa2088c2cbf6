package loop

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
)

// A heartbeat decodes the record of a status that it has not seen, and no other.
func TestRecordOfANodeIsDecodedOnce(t *testing.T) {
	t.Parallel()
	n := &knownNode{}
	require.Zero(t, n.recordOf(nil))
	s := &plan.ThingStatus{Detail: json.RawMessage(`{"region":"eu-1","attempt":2}`)}
	require.Equal(t, 2, n.recordOf(s).Transitions)
	s.Detail = nil // would be read as the zero record
	require.Equal(t, "eu-1", n.recordOf(s).Region)
	require.Equal(t, 3, n.recordOf(&plan.ThingStatus{Detail: json.RawMessage(`{"attempt":3}`)}).Transitions)
}
