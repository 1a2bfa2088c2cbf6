package loop_test

import (
	"encoding/json"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
)

// rolloutOf returns the rollout in the comment of a pull request.
func (w *world) rolloutOf(n int) (out *plan.Rollout) {
	w.t.Helper()
	w.forge.mu.Lock()
	defer w.forge.mu.Unlock()
	if text := w.forge.comments[n]["rollout"]; text != "" {
		out = &plan.Rollout{}
		require.NoError(w.t, json.Unmarshal([]byte(text), out))
	}
	return out
}
