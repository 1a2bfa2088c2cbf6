package loop

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
	return newEvent(event.InstanceDeleted, key, uid, 0, "c", event.Instance{
		OrgID: "physics", ProjectID: "physics.lab", AppInstanceID: uid, ResourceName: key.ResourceName(), Status: "deleted",
	}, at)
}

// What is kept in memory is bounded in number and in time, in whatever order the
// events come; an event of another shape is none.
func TestDeletionsAreBounded(t *testing.T) {
	now := time.Unix(1_800_000_000, 0).UTC()
	d := newDeletions(0, func() time.Time { return now })
	for i := range maxDeletions + 500 {
		n := (i*7919 + 13) % (maxDeletions + 500) // each once, in no order
		d.note(deletionEvent(fmt.Sprint("i", n), fmt.Sprint("u", n), now.Add(-time.Duration(n)*time.Second)))
	}
	require.Len(t, d.order, maxDeletions)
	require.Len(t, d.of, 2*maxDeletions)
	small := newDeletions(0, func() time.Time { return now })
	for range 3 {
		small.note(deletionEvent("a", "u", now), deletionEvent("b", "v", now))
	}
	require.Len(t, small.order, 2, "noted again it changes nothing")
	_, ok := d.find("physics", "lab", "u0")
	require.True(t, ok)
	_, ok = d.find("physics", "lab", fmt.Sprint("u", maxDeletions+499))
	require.False(t, ok, "the oldest are forgotten")

	// The one deleted last has the name, whichever was read first.
	d.note(deletionEvent("i0", "older", now.Add(-time.Hour)))
	one, _ := d.find("physics", "lab", "i0")
	require.Equal(t, "u0", one.ID)

	now = now.Add(defaultRetention + time.Minute)
	d.note(deletionEvent("last", "last", now))
	require.Less(t, len(d.order), maxDeletions)
	_, ok = d.find("physics", "lab", "u0")
	require.False(t, ok)

	forged := deletionEvent("forged", "f", now)
	forged.Payload = []byte(`{"org_id":"biology","project_id":"physics.lab","app_instance_id":"f","resource_name":"physics.lab/forged"}`)
	broken := deletionEvent("broken", "b", now)
	broken.Payload = []byte(`[]`)
	d.note(forged, broken)
	for _, id := range []string{"f", "b", "forged", "broken"} {
		_, ok = d.find("physics", "lab", id)
		require.False(t, ok, id)
	}
}
