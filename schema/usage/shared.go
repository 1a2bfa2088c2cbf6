package usage

import (
	"cmp"
	"maps"
	"math"
	"math/big"
	"slices"
	"strings"

	"berth/schema"
)

// Terms say how records are added up.
type Terms struct {
	// Closed reports whether the records of a unit in a month are complete; nil: none are.
	Closed func(cluster, unit, month string) bool
	// Cards are the rate cards by name.
	Cards map[string]*schema.RateCard
	// Users: each user has sums of its own.
	Users bool
	// Closings are the closed days whose shared cost is added up.
	Closings []Closing
}

// card returns the rate card that prices the use of a tenant on a day, and its name; nil without one. It
// is the one that ref names, or the default one if ref names none that exists and applies to the tenant.
// A card that replaces it from that day on prices the use in its place; a card that replaces that one does not.
func (t *Terms) card(ref, tenant, day string) (string, *schema.RateCard) {
	name := cmp.Or(ref, schema.DefaultRates)
	card := t.Cards[name]
	if card == nil || !card.Spec.PricesFor(tenant) {
		name = schema.DefaultRates
		card = t.Cards[name]
	}
	named, from := name, ""
	for other, c := range t.Cards {
		s := &c.Spec
		if s.Replaces != named || s.From > day || !s.PricesFor(tenant) {
			continue
		}
		if s.From > from || s.From == from && other > name {
			name, card, from = other, c, s.From
		}
	}
	return name, card
}

// bill is the cost of a unit in a month beside its jobs.
type bill struct {
	cluster string
	owner   Account // line of the owner
	card    *schema.RateCard
	days    []Closing         // closed days of the month
	used    map[Account]*Cost // of the jobs on these days, by line of the project
}

// bills returns the bills of units whose rate card has a shared cost, in order of month and unit.
func bills(records []Record, t *Terms) []*bill {
	type name struct{ month, unit, cluster, rates string }
	type day struct{ cluster, day string }
	by, of := map[name]*bill{}, map[day]*bill{}
	for _, c := range t.Closings {
		rates, card := t.card(c.BillingPolicyRef, c.OwnerID, c.Day)
		if card == nil || card.Spec.Shared == nil || c.Unused == nil {
			continue
		}
		n := name{c.Day[:len("2026-11")], c.Unit, c.Cluster, rates}
		if by[n] == nil {
			owner := Account{Month: n.month, Kind: KindShared, OrgID: c.OwnerID, Unit: c.Unit, AppSlug: c.AppSlug, Rates: n.rates}
			by[n] = &bill{cluster: c.Cluster, owner: owner, card: card, used: map[Account]*Cost{}}
		}
		by[n].days = append(by[n].days, c)
		of[day{c.Cluster, c.Day}] = by[n]
	}
	for i := range records {
		r := &records[i]
		b := of[day{r.Cluster, r.Day}]
		if b == nil || r.ProjectID == "" || r.Corrects != "" { // a correction does not count as use of its day
			continue
		}
		payer := b.payer(r.ProjectID)
		if b.used[payer] == nil {
			b.used[payer] = &Cost{card: b.card}
		}
		b.used[payer].Add(r)
	}
	return slices.SortedFunc(maps.Values(by), func(a, b *bill) int {
		return cmp.Or(a.owner.compare(b.owner), strings.Compare(a.cluster, b.cluster))
	})
}

// payer returns the line of a project.
func (b *bill) payer(project string) Account {
	a := b.owner
	a.OrgID, _, _ = strings.Cut(project, ".")
	a.ProjectID = project
	return a
}

// amounts are idle CPU seconds, idle GPU seconds and millionths of a currency.
type amounts [3]*big.Rat

func newAmounts() amounts { return amounts{new(big.Rat), new(big.Rat), new(big.Rat)} }

// add adds a part of other amounts.
func (a amounts) add(of amounts, part *big.Rat) {
	for i := range a {
		a[i].Add(a[i], new(big.Rat).Mul(of[i], part))
	}
}

// cost returns the cost of a day.
func (b *bill) cost(c *Closing) amounts {
	s, u, a := b.card.Spec.Shared, c.Unused, newAmounts()
	a[0].SetInt64(u.IdleCPUs)
	a[1].SetInt64(u.IdleGPUs)
	a[2].Add(hours(u.IdleCPUs, s.IdleCPUHour), hours(u.IdleGPUs, s.IdleGPUHour))
	if c.Accounted+u.IdleCPUs+u.IdleGPUs > 0 { // a node was up
		a[2].Add(a[2], new(big.Rat).SetInt64(int64(s.ControlPlaneDay)))
	}
	return a
}

// hours returns the price of seconds.
func hours(seconds int64, price schema.Price) *big.Rat {
	return new(big.Rat).SetFrac(new(big.Int).Mul(big.NewInt(seconds), big.NewInt(int64(price))), big.NewInt(hour))
}

// split returns the whole cost of the days, and the part of each payer.
func (b *bill) split() (whole amounts, parts map[Account]amounts) {
	whole, parts = newAmounts(), map[Account]amounts{}
	give := func(to Account, of amounts, part *big.Rat) {
		if parts[to] == (amounts{}) {
			parts[to] = newAmounts()
		}
		parts[to].add(of, part)
	}
	all, how := big.NewRat(1, 1), b.card.Spec.Shared.Split
	for i := range b.days {
		c := &b.days[i]
		day := b.cost(c)
		whole.add(day, all)
		switch {
		case how == schema.SplitByUse:
		case how == schema.SplitEqual && len(c.Projects) > 0:
			for _, p := range c.Projects {
				give(b.payer(p), day, big.NewRat(1, int64(len(c.Projects))))
			}
		default:
			give(b.owner, day, all)
		}
	}
	if how != schema.SplitByUse {
		return whole, parts
	}
	used := new(big.Int)
	for _, c := range b.used {
		used.Add(used, &c.sum)
	}
	if used.Sign() == 0 {
		give(b.owner, whole, all)
		return whole, parts
	}
	for payer, c := range b.used {
		if c.sum.Sign() > 0 {
			give(payer, whole, new(big.Rat).SetFrac(&c.sum, used))
		}
	}
	return whole, parts
}

// shared returns the lines of the shared cost. Those of a unit and a month add up to the whole.
func shared(records []Record, t *Terms) (lines []Sum) {
	for _, b := range bills(records, t) {
		whole, parts := b.split()
		payers := slices.SortedFunc(maps.Keys(parts), Account.compare)
		var rounded [len(whole)][]int64
		for i := range whole {
			var exact []*big.Rat
			for _, p := range payers {
				exact = append(exact, parts[p][i])
			}
			rounded[i] = apportion(whole[i], exact)
		}
		closed := t.Closed != nil && t.Closed(b.cluster, b.owner.Unit, b.owner.Month)
		for i, p := range payers {
			price := &Price{Currency: b.card.Spec.Currency, Millionths: rounded[2][i]}
			idle := Amounts{CPUSeconds: rounded[0][i], GPUSeconds: rounded[1][i]}
			lines = append(lines, Sum{Account: p, Amounts: idle, Closed: closed, Price: price})
		}
	}
	return lines
}

// apportion rounds parts of a whole down to integers. Those with the largest remainders get one more, the
// first of equal ones first, until they add up to the whole, rounded half up. One beyond an int64 is the
// largest int64.
func apportion(whole *big.Rat, parts []*big.Rat) []int64 {
	floors, rest := make([]*big.Int, len(parts)), make([]*big.Rat, len(parts))
	missing := floor(new(big.Rat).Add(whole, big.NewRat(1, 2)))
	order := make([]int, len(parts))
	for i, p := range parts {
		floors[i], order[i] = floor(p), i
		rest[i] = new(big.Rat).Sub(p, new(big.Rat).SetInt(floors[i]))
		missing.Sub(missing, floors[i])
	}
	slices.SortStableFunc(order, func(a, b int) int { return rest[b].Cmp(rest[a]) })
	out := make([]int64, len(parts))
	for n, i := range order {
		if int64(n) < missing.Int64() {
			floors[i].Add(floors[i], big.NewInt(1))
		}
		if out[i] = math.MaxInt64; floors[i].IsInt64() {
			out[i] = floors[i].Int64()
		}
	}
	return out
}

// floor returns a number, which is not negative, rounded down.
func floor(n *big.Rat) *big.Int { return new(big.Int).Div(n.Num(), n.Denom()) }
