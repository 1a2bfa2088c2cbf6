package usage

import (
	"fmt"
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth/schema"
)

// pool is a shared runtime of the organisation a with a rate card for its shared cost.
type pool struct {
	records []Record
	terms   Terms
	cost    *schema.SharedCost
}

func newPool(split string) *pool {
	card := &schema.RateCard{Spec: schema.RateCardSpec{Currency: "EUR", Prices: schema.Prices{CPUHour: 3600},
		Shared: &schema.SharedCost{Split: split, ControlPlaneDay: 10, IdleCPUHour: 3600, IdleGPUHour: 7200}}}
	card.Key.Name = "lab"
	return &pool{nil, Terms{Cards: map[string]*schema.RateCard{"lab": card}}, card.Spec.Shared}
}

// close closes a day of November.
func (p *pool) close(day int, unused Unused, projects ...string) {
	p.terms.Closings = append(p.terms.Closings,
		Closing{Cluster: "c", Day: fmt.Sprintf("2026-11-%02d", day), Unit: "SharedRuntime a/pool", OwnerID: "a", AppSlug: "slurm",
			BillingPolicyRef: "lab", Projects: projects, Unused: &unused})
}

// use adds a job with one CPU.
func (p *pool) use(id, day, seconds int, project string) {
	at := time.Date(2026, 11, day, 12, 0, 0, 0, time.UTC)
	p.records = append(p.records, used(Record{Unit: "SharedRuntime a/pool", Job: Job{Cluster: "c", JobID: id, Submitted: at, Started: at,
		Ended: at.Add(time.Duration(seconds) * time.Second), ProjectID: project, Resources: Resources{CPUs: 1}}}))
}

// shared returns the lines of the shared cost: project, idle seconds of CPUs and GPUs, and price.
func (p *pool) shared() (lines []string) {
	for _, s := range Sums(p.records, &p.terms) {
		if s.Kind == KindShared {
			lines = append(lines, fmt.Sprint(s.OrgID, "|", s.ProjectID, "|", s.CPUSeconds, "|", s.GPUSeconds, "|", s.Price.Millionths))
		}
	}
	return lines
}

// The rate card says who pays the shared cost of a unit: its owner, or its projects, and the parts add
// up to the whole (requirement A13).
func TestSharedCostIsSplitAsTheRateCardSays(t *testing.T) {
	of := func(split string) *pool {
		p := newPool(split)
		p.use(1, 1, 300, "a.x")
		p.use(2, 2, 100, "b.y")
		p.close(1, Unused{IdleCPUs: 100, IdleGPUs: 10, DownCPUs: 7}, "a.x", "b.y") // 100 + 20 + 10
		p.close(2, Unused{IdleCPUs: 61}, "a.x", "b.y", "b.z")                      // 61 + 10
		p.close(3, Unused{IdleCPUs: 40})                                           // 40 + 10, with no project
		p.close(4, Unused{DownCPUs: 86400}, "a.x")                                 // no node was up
		return p
	}
	require.Equal(t, []string{"a||201|10|251"}, of(schema.SplitNone).shared())
	// 65 + 71/3 each, where the first ones get what rounding leaves, and 50 for the owner of the day without a project.
	require.Equal(t, []string{"a||40|0|50", "a|a.x|71|5|89", "b|b.y|70|5|89", "b|b.z|20|0|23"}, of(schema.SplitEqual).shared())
	// 3 to 1, of the month: b.z had no job.
	require.Equal(t, []string{"a|a.x|151|8|188", "b|b.y|50|2|63"}, of(schema.SplitByUse).shared())

	idle := newPool(schema.SplitByUse)
	idle.close(1, Unused{IdleCPUs: 100}, "a.x")
	require.Equal(t, []string{"a||100|0|110"}, idle.shared(), "no project had a job")
}

// Of a month that is not over, only closed days are split, by the jobs of these days. An unknown idle time
// is not split, and a card without shared cost has none. Closings of another month, unit or card are apart.
func TestOnlyClosedDaysAreSplit(t *testing.T) {
	p := newPool(schema.SplitByUse)
	p.use(1, 1, 100, "a.x")
	p.use(2, 2, 900, "a.y") // its day is open
	late := p.records[1]
	late.Day, late.Corrects = "2026-11-01", "2026-10-31" // no use of that day
	p.records = append(p.records, late)
	p.close(1, Unused{IdleCPUs: 100}, "a.x", "a.y")
	require.Equal(t, []string{"a|a.x|100|0|110"}, p.shared())
	for _, s := range Sums(p.records, &p.terms) {
		require.False(t, s.Closed)
	}
	p.terms.Closed = func(cluster, unit, month string) bool {
		return cluster == "c" && unit == "SharedRuntime a/pool" && month == "2026-11"
	}
	for _, s := range Sums(p.records, &p.terms) {
		require.True(t, s.Closed)
	}

	p.terms.Closings[0].Unused = nil
	require.Empty(t, p.shared(), "unknown")
	p.close(3, Unused{IdleCPUs: 100}, "a.x")
	p.cost.Split = schema.SplitEqual
	require.Len(t, p.shared(), 1)
	p.terms.Cards["lab"].Spec.Shared = nil
	require.Empty(t, p.shared(), "no shared cost")

	p = newPool(schema.SplitEqual)
	p.close(1, Unused{IdleCPUs: 3}, "a.x", "a.y")
	p.close(2, Unused{IdleCPUs: 3}, "a.x", "a.y")
	p.terms.Closings[1].Day = "2026-12-02"
	require.Equal(t, []string{"a|a.x|2|0|7", "a|a.y|1|0|6", "a|a.x|2|0|7", "a|a.y|1|0|6"}, p.shared(), "two months, each rounded by itself")
}

// Parts add up to the rounded whole, and each is at most one away from its exact value.
func TestPartsAddUpToTheWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var parts []*big.Rat
		whole := new(big.Rat)
		for range rapid.IntRange(1, 9).Draw(t, "n") {
			p := big.NewRat(rapid.Int64Range(0, 1<<40).Draw(t, "num"), rapid.Int64Range(1, 1000).Draw(t, "den"))
			parts = append(parts, p)
			whole.Add(whole, p)
		}
		sum := int64(0)
		for i, n := range apportion(whole, parts) {
			sum += n
			off := new(big.Rat).Sub(new(big.Rat).SetInt64(n), parts[i])
			require.Negative(t, off.Abs(off).Cmp(big.NewRat(1, 1)))
		}
		require.Equal(t, floor(new(big.Rat).Add(whole, big.NewRat(1, 2))).Int64(), sum)
	})
	huge := new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), 70))
	require.Equal(t, []int64{math.MaxInt64}, apportion(huge, []*big.Rat{huge}))
}
