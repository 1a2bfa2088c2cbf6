package loop

import (
	"bytes"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/status"
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
	q.Touch(reconciler.Item{Task: reconciler.TaskUnit, Unit: schema.InstanceKey("b", "p", "3")})
	require.Zero(t, q.Len(), "it does not wait")
	push("b/3")
	require.Equal(t, []string{"b/3"}, pop(1))
}

// An item whose owner becomes known while it waits takes its turn with the owner's others.
func TestItemsMoveToTheirOwner(t *testing.T) {
	owner := map[int]string{}
	q := newFairQueue(func(i reconciler.Item) string { return owner[i.Pull] })
	pull := func(n int) reconciler.Item { return reconciler.Item{Task: reconciler.TaskPull, Pull: n} }
	for n := range 100 {
		q.Push(pull(n))
	}
	for n := range 100 {
		owner[n] = "eve"
	}
	owner[99] = "ada"
	for n := range 100 {
		q.Touch(pull(n))
	}
	require.Equal(t, 100, q.Len())
	var order []int
	for q.Len() > 0 {
		order = append(order, q.Pop().Pull)
	}
	require.Len(t, order, 100)
	require.Equal(t, []int{0, 99, 1, 2}, order[:4])
}

// A merge that holds thousands of documents of one tenant leaves room in the log for those of others.
func TestHeldDocumentsOfOneTenantFillNoLog(t *testing.T) {
	var text bytes.Buffer
	r := recorder{log: slog.New(slog.NewTextHandler(&text, nil)), status: status.NewWriter(status.Options{Now: time.Now})}
	next := &reconciler.State{Main: "c445900fceee", Desired: &schema.Desired{Platform: &schema.Platform{}}}
	hold := func(tenant, name string) {
		key := schema.Key{Kind: schema.KindRoleBinding, Tenant: tenant, Name: name}
		next.Held = append(next.Held, schema.Held{Key: key, File: tenant + "/" + name, Reason: schema.HeldDenied})
	}
	for i := range 10_000 {
		hold("eve", strconv.Itoa(i))
	}
	hold("zoe", "one")
	r.logHeld(nil, next)
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	require.Len(t, lines, mostHeldLines+2)
	require.Contains(t, lines[mostHeldLines], "file=zoe/one")
	require.Contains(t, lines[mostHeldLines+1], `msg="more documents held"`)
	require.Contains(t, lines[mostHeldLines+1], "org_id=eve")
	require.Contains(t, lines[mostHeldLines+1], "count=9900")
}
