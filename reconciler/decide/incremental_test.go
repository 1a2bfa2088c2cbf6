package decide_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/estate"
)

// platformEdits are edits of documents shared by all tenants.
func platformEdits(base map[string]string) []edit {
	policy := func(spec string) edit {
		return edit{"platform/policy/campus.yaml": doc("Policy", "campus", "spec: "+spec+"\n")}
	}
	all := []edit{
		policy("{scope: global, max_gpus_per_instance: 1, noncompliant: {action: stop, grace_until: 2026-02-03}}"),
		policy("{scope: global, max_gpus_per_instance: 1, noncompliant: {action: hold}}"),
		policy("{scope: global, max_instances_per_project: 1}"),
		policy("{scope: global, hard_deny: {apps: [batch]}}"),
		{"platform/policy/campus.yaml": ""},
		{"platform/catalog/batch/v1.yaml": strings.Replace(base["platform/catalog/batch/v1.yaml"], "status: active", "status: disabled",
			1)},
		{"platform/catalog/batch/v1.yaml": base["platform/catalog/batch/v1.yaml"]},
	}
	for path, text := range base {
		if strings.HasPrefix(path, "platform/nodes/") {
			all = append(all, edit{path: text + "  cordoned: true\n"}, edit{path: text})
		}
	}
	return all
}

// The caches of a Decider do not change its decisions and assignments, regardless of
// earlier decisions and proposals. The test mixes edits, moves, deletions, invalid
// documents, policies, nodes and days.
func TestCachesDoNotChangeDecisions(t *testing.T) {
	t.Parallel()
	cachesDoNotChangeDecisions(t, 0, 3)
}

func cachesDoNotChangeDecisions(t *testing.T, first, histories uint64) {
	base := sharedEstate()
	edits := [][]edit{mallows(base), eves(base), platformEdits(base)}
	for _, all := range edits { // in a fixed order
		slices.SortFunc(all, func(a, b edit) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
	paths := slices.Sorted(maps.Keys(base))
	outcomes := map[string]int{}
	shared := loader(t) // package load tests its own cache
	for seed := first; seed < first+histories; seed++ {
		r := rand.New(rand.NewPCG(seed, 11))
		w := newWorld(t, base)
		main, inforce, day := maps.Clone(base), maps.Clone(base), 1
		for step := range 20 {
			next := maps.Clone(main)
			switch r.IntN(6) {
			case 0:
				day++
			case 1:
				path := paths[r.IntN(len(paths))]
				next[path] = base[path] // restored
			default:
				all := edits[r.IntN(len(edits))]
				all[r.IntN(len(all))].to(next)
			}
			today := fmt.Sprintf("2026-02-%02d", day)
			decided := func(d *decide.Decider) (decide.Decision, string) {
				touched, err := trees{"a": main, "b": next}.Diff(context.Background(), "a", "b")
				require.NoError(t, err)
				out, err := d.Commit(context.Background(), decide.Standing{Tree: estate.Files(inforce)},
					[]decide.Step{{Commit: "c", Tree: estate.Files(next), Touched: touched}}, today)
				if err != nil {
					return out, err.Error()
				}
				return out, told(t, out)
			}
			got, bytes := decided(w.decider)
			_, want := decided(decide.New(decide.Options{Loader: shared}))
			require.Equal(t, want, bytes, "seed %d, step %d", seed, step)
			if got.Effective == nil {
				outcomes["frozen"]++
				continue // main is repaired from its previous state
			}
			placed := maps.Collect(w.decider.Place(got.Effective, w.memory).All())
			require.Equal(t, maps.Collect(plan.Place(got.Effective, w.memory).All()), placed)
			for key, members := range placed { // some members exist
				if r.IntN(4) == 0 {
					o := plan.Observed{Key: key, Presence: plan.Present, Complete: true,
						Unit: &plan.Unit{Effective: *got.Effective.Unit(key), Members: members}}
					w.memory = w.memory.With(&plan.Status{Key: key, Phase: plan.PhaseRunning, Observed: &o})
				}
			}
			outcomes["held"] += len(got.Held)
			outcomes["refused"] += len(got.Effective.Noncompliant())
			outcomes["in force"] += got.Effective.Len()
			main, inforce = next, inForce(got, next, inforce)
		}
	}
	for _, what := range []string{"held", "refused", "in force"} {
		require.Positive(t, outcomes[what], what)
	}
}

// told returns a complete decision as bytes.
func told(t *testing.T, d decide.Decision) string {
	var instances []*schema.EffectiveUnit
	for _, i := range d.Effective.All() {
		instances = append(instances, i)
	}
	slices.SortFunc(instances, func(a, b *schema.EffectiveUnit) int { return a.Key.Compare(b.Key) })
	data, err := json.Marshal([]any{d.Desired, instances, d.Effective.Nodes, d.Effective.Decisions(), d.Effective.Noncompliant(), d.Replace,
		d.Held, d.Permitted, d.Verdicts})
	require.NoError(t, err)
	return string(data)
}
