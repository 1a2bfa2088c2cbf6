package loop

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
)

// Events and log records name a unit by its uid, as the API does.
func TestEventsAndLogUseTheUID(t *testing.T) {
	s := phase(plan.PhaseRunning)
	s.UID = "0d9f2c6e-train"
	repo := &emptyRepo{}
	var log bytes.Buffer
	r := New(Options{Repo: repo, Log: slog.New(slog.NewTextHandler(&log, nil))})
	require.True(t, r.units.set(nil, s))
	require.Contains(t, log.String(), "app_instance_id=0d9f2c6e-train")

	ended, end := context.WithCancel(t.Context())
	end()
	require.NoError(t, r.status.Run(ended))
	require.Len(t, repo.events, 1)
	var p map[string]string
	require.NoError(t, json.Unmarshal(repo.events[0].Payload, &p))
	require.Equal(t, []string{"0d9f2c6e-train", s.Key.ResourceName()}, []string{p["app_instance_id"], p["resource_name"]})
}
