package usage

import (
	"math"
	"math/big"

	"berth/schema"
)

// Price is the cost of a Sum by a rate card.
type Price struct {
	Currency string `json:"currency"`
	// Millionths are millionths of the currency, rounded half up once.
	Millionths int64 `json:"millionths"`
}

// Cost adds up what records cost by a rate card: CPUs for the time without suspensions, memory and GPUs
// for all the time, as accounting charges them. It is exact until Price rounds it.
type Cost struct {
	card *schema.RateCard
	sum  big.Int // millionths of the currency × seconds × MiB of a GiB
}

const (
	hour      = 3600
	mibsOfGiB = 1024
)

// Add adds a record.
func (c *Cost) Add(r *Record) {
	add := func(factors ...int64) {
		product := big.NewInt(1)
		for _, f := range factors {
			product.Mul(product, big.NewInt(f))
		}
		c.sum.Add(&c.sum, product)
	}
	s := c.card.Spec.PricesOf(r.Queue, r.Partition, r.QoS)
	add(r.CPUSeconds, int64(s.CPUHour), mibsOfGiB)
	add(r.GPUSeconds, int64(s.GPUHour(r.GPUType)), mibsOfGiB)
	add(r.MemoryMiBSeconds, int64(s.MemoryHour))
	add(r.BillingSeconds, int64(s.BillingHour), mibsOfGiB)
}

// Price returns the cost. One beyond an int64 is the largest int64, or the smallest one.
func (c *Cost) Price() *Price {
	n, unit := new(big.Int).Set(&c.sum), big.NewInt(hour*mibsOfGiB)
	n.Add(n, new(big.Int).Rsh(unit, 1)).Div(n, unit)
	p := &Price{Currency: c.card.Spec.Currency, Millionths: math.MaxInt64}
	switch {
	case n.IsInt64():
		p.Millionths = n.Int64()
	case n.Sign() < 0:
		p.Millionths = math.MinInt64
	}
	return p
}
