package large_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/examples/large"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/load"
	"berth/schema/policy"
)

func loader(t testing.TB) *load.Loader {
	definitions, err := os.ReadFile("../../runtimes/slurm/config.cue")
	require.NoError(t, err)
	l, err := load.New(load.Options{Backends: map[string]string{"slurm": string(definitions)}})
	require.NoError(t, err)
	return l
}

// settled is what memory says once everything placed is made and seen.
func settled(eff *schema.Effective) plan.Memory {
	mem := plan.Memory{}
	for key, members := range plan.Place(eff, nil).Members {
		inst := eff.Instances[key]
		o := plan.Observed{Key: key, Presence: plan.Present, Complete: true, Unit: &plan.Unit{Instance: *inst, Members: members}}
		st := &plan.Status{Key: key, Phase: plan.PhaseRunning, Observed: &o}
		for _, m := range members {
			st.Members = append(st.Members, plan.MemberStatus{Member: m, Placed: m.Reason})
			o.Members = append(o.Members, plan.MemberState{Name: m.Name, Node: m.Node, State: plan.Running})
		}
		mem[key] = st
	}
	return mem
}

func BenchmarkSteps(b *testing.B) {
	for _, size := range []int{1_000, 10_000, 50_000} {
		files := large.Estate(size)
		var instances []string
		for path := range files {
			if strings.Contains(path, "/instances/") {
				instances = append(instances, path)
			}
		}
		slices.Sort(instances)
		tree := maps.Clone(files)
		previous := load.Files(tree)
		l := loader(b)
		ctx := context.Background()
		start := time.Now()
		res, err := l.Load(ctx, previous)
		cold := time.Since(start)
		require.NoError(b, err)
		require.Empty(b, res.Diagnostics)
		start = time.Now()
		_, err = l.Load(ctx, previous)
		cached := time.Since(start)
		require.NoError(b, err)
		before := policy.Evaluate(res.Desired)
		mem := settled(before)
		fmt.Printf("size %d: %d files, cold %v, cached %v, %d instances\n", size, len(files), cold, cached, len(mem))
		n := 0
		for _, k := range []int{1, 100} {
			k := k
			b.Run(fmt.Sprintf("%d/%d", size, k), func(b *testing.B) {
				steps := map[string][]time.Duration{}
				for b.Loop() {
					b.StopTimer()
					changed := map[string]string{}
					for i := range k {
						n++
						path := instances[(n*7919+i*len(instances)/k)%len(instances)]
						changed[path] = large.Change(files[path], n)
					}
					maps.Copy(tree, changed)
					now, was := load.Files(tree), previous
					b.StartTimer()
					last := time.Now()
					step := func(name string) {
						now := time.Now()
						steps[name] = append(steps[name], now.Sub(last))
						last = time.Now()
					}
					_, err := l.Load(ctx, now)
					require.NoError(b, err)
					step("load")
					f, err := l.InForce(ctx, now, was, nil)
					require.NoError(b, err)
					step("inforce")
					eff := policy.Evaluate(f.Result.Desired)
					step("policy")
					place := plan.Place(eff, mem)
					step("place")
					for path := range changed {
						key := f.Main.Key(path)
						_ = plan.Make(plan.Input{Key: key, After: eff.Instances[key], Members: place.Members[key], Observed: *mem[key].Observed})
					}
					step("make")
					previous = now
				}
				for name, ds := range steps {
					slices.Sort(ds)
					b.ReportMetric(float64(ds[len(ds)/2].Microseconds())/1000, name+"-ms")
				}
			})
		}
	}
}
