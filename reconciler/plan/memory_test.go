package plan_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth/reconciler/plan"
	"berth/schema"
)

// A Memory is a map whose earlier values never change. ChangedMemory returns
// exactly the differences of two.
func TestMemoryIsImmutable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type held struct {
			mem   plan.Memory
			model map[schema.Key]*plan.Status
		}
		pick := rapid.SampledFrom([]string{"a", "b", "c"})
		draw := func() schema.Key {
			k := schema.InstanceKey(pick.Draw(t, "tenant"), pick.Draw(t, "project"), pick.Draw(t, "name"))
			if rapid.IntRange(0, 9).Draw(t, "other kind") == 0 {
				k.Kind = schema.KindSharedRuntime
			}
			return k
		}
		all := []held{{model: map[schema.Key]*plan.Status{}}}
		for i := range rapid.IntRange(1, 12).Draw(t, "steps") {
			last := all[len(all)-1]
			next := held{last.mem, maps.Clone(last.model)}
			if rapid.Bool().Draw(t, "goes") {
				k := draw()
				next.mem = next.mem.Without(k)
				delete(next.model, k)
			} else {
				var some []*plan.Status
				for range rapid.IntRange(0, 4).Draw(t, "units") {
					s := &plan.Status{Key: draw(), LastApplied: plan.LastApplied{Revision: fmt.Sprint(i)}}
					some = append(some, s)
					next.model[s.Key] = s
				}
				next.mem = next.mem.With(some...)
			}
			all = append(all, next)
		}
		for _, h := range all {
			require.Equal(t, h.model, maps.Collect(h.mem.All()))
			require.Equal(t, len(h.model), h.mem.Len())
			require.Len(t, h.mem.Keys(), len(h.model))
			for k := range h.model {
				require.Same(t, h.model[k], h.mem.Get(k))
				require.Same(t, h.model[k], maps.Collect(h.mem.Project(k.Tenant, k.Project))[k])
			}
			if len(h.model) == 0 {
				require.Equal(t, plan.Memory{}, h.mem)
			}
			for _, o := range all {
				want := map[schema.Key]bool{}
				for k := range h.model {
					want[k] = h.model[k] != o.model[k]
				}
				for k := range o.model {
					want[k] = h.model[k] != o.model[k]
				}
				maps.DeleteFunc(want, func(_ schema.Key, differs bool) bool { return !differs })
				got := map[schema.Key]bool{}
				for k := range plan.ChangedMemory(h.mem, o.mem) {
					require.False(t, got[k], "told twice")
					got[k] = true
				}
				require.Equal(t, want, got)
			}
		}
	})
}
