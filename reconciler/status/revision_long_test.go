//go:build long

package status

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/schema"
)

// revision.yaml stays readable regardless of the size of a tenant's texts.
func TestLongRevisionIsBounded(t *testing.T) {
	t.Parallel()
	const documents, notices, digest = 1000, 50, "0123456789abcdef"
	for name, text := range map[string]string{
		"long": strings.Repeat("x", 12<<10), "escaped": strings.Repeat("\x01\U0001F600", 3<<10), "lines": strings.Repeat("x\n", 6<<10),
	} {
		w := newWriter(t, &statusRepo{}, time.Hour)
		var held []schema.Held
		for i := range documents {
			held = append(held, schema.Held{
				Key: schema.InstanceKey("physics", "lhc", fmt.Sprint("i", i)), File: fmt.Sprintf("tenants/physics/%d/%s.yaml", i, text),
				Reason:  "denied",
				Ack:     digest,
				Message: text + ": with the trailer " + decide.AckTrailer + ": " + digest,
			})
		}
		was := held[0]
		w.Revise(func(rev *reconciler.Revision) {
			rev.Held, rev.HeldMore, rev.Frozen = held, 7, text
			for i := range notices {
				rev.Notices = append(rev.Notices, fmt.Sprintf("tenant t%d: %s", i, text))
			}
		})
		rev := w.Revision()
		data, err := yaml.Marshal(rev)
		require.NoError(t, err)
		require.Less(t, len(data), reconciler.MaxRevision-4096, name)
		require.Equal(t, documents+7, len(rev.Held)+rev.HeldMore, name)
		require.Greater(t, len(rev.Held), 200, name)
		require.Len(t, rev.Notices, notices)
		require.True(t, strings.HasPrefix(rev.Notices[1], "tenant t1: "))
		require.Equal(t, was, held[0], "the decision in memory is not cut")
		require.True(t, strings.HasSuffix(rev.Held[0].Message, digest), "a reader finds the trailer to commit")
		var read reconciler.Revision
		require.NoError(t, yaml.Unmarshal(data, &read))
		require.Equal(t, digest, read.Held[0].Ack, "an acknowledgement finds it after a restart")
		for i, h := range rev.Held {
			require.Equal(t, CutHeld(held[i]), h, "the loop recognizes it after a restart")
		}
		again := w.count
		w.Revise(func(rev *reconciler.Revision) { rev.Held, rev.HeldMore, rev.Frozen = held, 7, text })
		require.Equal(t, again, w.count, "nothing changed")
	}
}
