package loop

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/schema"
)

func TestOwnersTakeTurns(t *testing.T) {
	q := newFairQueue(tenantOf)
	push := func(names ...string) {
		for _, name := range names {
			tenant, instance, _ := strings.Cut(name, "/")
			q.Push(reconciler.Item{Task: reconciler.TaskUnit, Unit: schema.InstanceKey(tenant, "p", instance)})
		}
	}
	pop := func(n int) (out []string) {
		for range n {
			i := q.Pop()
			out = append(out, i.Unit.Tenant+"/"+i.Unit.Name)
		}
		return out
	}
	push("a/1", "a/2", "a/3", "a/4", "b/1", "c/1", "c/2")
	require.Equal(t, []string{"a/1", "b/1", "c/1", "a/2"}, pop(4))
	push("b/2", "a/5")
	require.Equal(t, 5, q.Len())
	require.Equal(t, []string{"c/2", "a/3", "b/2", "a/4", "a/5"}, pop(5))
	require.Zero(t, q.Len())
	push("b/3")
	require.Equal(t, []string{"b/3"}, pop(1))
}
