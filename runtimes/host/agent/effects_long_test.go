//go:build long

package agent_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/runtimes"
)

func TestLongResultsAreBounded(t *testing.T) {
	f := newFar(t)
	for i := range 6000 {
		require.NoError(t, os.WriteFile(f.path("open", fmt.Sprintf("%s-%d", strings.Repeat("n", 200), i)), nil, 0o644))
	}
	var ops []runtimes.Op
	for range 20 {
		ops = append(ops, runtimes.Op{List: &runtimes.List{Path: f.path("open")}})
	}
	r := f.ask(f.stamp(), ops...)
	require.NotNil(t, r.Fault)
	require.Contains(t, r.Fault.Message, "results of one request")
}
