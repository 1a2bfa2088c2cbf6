package status

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/event"
)

func deletionEvent(name, uid string, at time.Time) plan.Event {
	key := schema.InstanceKey("physics", "lab", name)
	return NewEvent(event.InstanceDeleted, key, uid, 0, "c", event.Instance{
		OrgID: "physics", ProjectID: "physics.lab", AppInstanceID: uid, ResourceName: key.ResourceName(), Status: "deleted",
	}, at)
}

// Deleted instances in memory are bounded in number and time, in any order of events.
// An event with another payload is ignored.
func TestDeletionsAreBounded(t *testing.T) {
	now := time.Unix(1_800_000_000, 0).UTC()
	d := newDeletedInstances(0, func() time.Time { return now })
	for i := range maxDeleted + 500 {
		n := (i*7919 + 13) % (maxDeleted + 500) // each once, in mixed order
		d.Note(deletionEvent(fmt.Sprint("i", n), fmt.Sprint("u", n), now.Add(-time.Duration(n)*time.Second)))
	}
	require.Len(t, d.order, maxDeleted)
	require.Len(t, d.of, 2*maxDeleted)
	small := newDeletedInstances(0, func() time.Time { return now })
	for range 3 {
		small.Note(deletionEvent("a", "u", now), deletionEvent("b", "v", now))
	}
	require.Len(t, small.order, 2, "a repeated event changes nothing")
	_, ok := d.Find("physics", "lab", "u0")
	require.True(t, ok)
	_, ok = d.Find("physics", "lab", fmt.Sprint("u", maxDeleted+499))
	require.False(t, ok, "the oldest are dropped")

	// The name belongs to the last deleted instance, in any order of reading.
	d.Note(deletionEvent("i0", "older", now.Add(-time.Hour)))
	one, _ := d.Find("physics", "lab", "i0")
	require.Equal(t, "u0", one.ID)

	now = now.Add(defaultRetention + time.Minute)
	d.Note(deletionEvent("last", "last", now))
	require.Less(t, len(d.order), maxDeleted)
	_, ok = d.Find("physics", "lab", "u0")
	require.False(t, ok)

	forged := deletionEvent("forged", "f", now)
	forged.Payload = []byte(`{"org_id":"biology","project_id":"physics.lab","app_instance_id":"f","resource_name":"physics.lab/forged"}`)
	broken := deletionEvent("broken", "b", now)
	broken.Payload = []byte(`[]`)
	d.Note(forged, broken)
	for _, id := range []string{"f", "b", "forged", "broken"} {
		_, ok = d.Find("physics", "lab", id)
		require.False(t, ok, id)
	}
}
