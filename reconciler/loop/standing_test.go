package loop

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
)

// The first event of a shared runtime precedes the events of its attachments, and its
// last event follows theirs. All carry the uid, as the API does.
func TestSharedRuntimeEventsComeFirst(t *testing.T) {
	runtime := &schema.SharedRuntime{Header: schema.Header{Key: schema.Key{Kind: schema.KindSharedRuntime, Tenant: "physics", Name: "department"}, UID: "sr-77"}}
	attachment := &schema.Attachment{Header: schema.Header{Key: schema.Key{Kind: schema.KindAttachment, Tenant: "physics", Parent: "department", Name: "collider"}}}
	of := func(all map[string]*schema.SharedRuntimeEstate) *reconciler.State {
		return &reconciler.State{Main: "m", Effective: &schema.Effective{}, Desired: &schema.Desired{Platform: &schema.Platform{}, Tenants: map[string]*schema.TenantEstate{"physics": {Name: "physics", SharedRuntimes: all}}}}
	}
	repo := &emptyRepo{}
	w := newWriter(t, repo)
	r := &sharedRuntimes{status: w}
	r.record(of(map[string]*schema.SharedRuntimeEstate{"department": {Name: "department", Runtime: runtime, Attachments: map[string]*schema.Attachment{"collider": attachment}}}))
	r.record(of(nil))
	var reported []string
	ended, end := context.WithCancel(t.Context())
	end()
	require.NoError(t, w.Run(ended), "last write before the stop")
	for _, e := range repo.events {
		var p map[string]string
		require.NoError(t, json.Unmarshal(e.Payload, &p))
		require.Equal(t, "sr-77", p["shared_runtime_id"])
		reported = append(reported, e.EventType+" "+p["resource_name"])
	}
	require.Equal(t, []string{
		"apps.shared_runtime.requested physics/department", "apps.shared_runtime.attachment.requested physics/department/collider",
		"apps.shared_runtime.attachment.detached physics/department/collider", "apps.shared_runtime.deleting physics/department", "apps.shared_runtime.deleted physics/department",
	}, reported)
}

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
