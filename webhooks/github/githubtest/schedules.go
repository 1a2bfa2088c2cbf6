package githubtest

import (
	"cmp"
	"math/rand/v2"
)

// Attempt describes one delivery of an event.
type Attempt struct {
	// Behind is the number of later events that overtake it. Settle delivers it if fewer
	// follow.
	Behind int
	// With Fails the receiver is not reached, with Unheard its answer is lost; the log
	// has both as failed.
	Fails, Unheard bool
}

// Schedule returns the deliveries of an event: none (not logged either), one or more.
// It is called for one event at a time, not for redeliveries.
type Schedule func(Delivery) []Attempt

// Weather has the probabilities that a delivery fails in some way, each from 0 to 1.
type Weather struct {
	Lost, Fails, Unheard, Doubled, Late float64
	Behind                              int // most events that overtake a late one; 0 is 5
}

// RandomSchedule makes random faults. Equal sources give equal schedules for equal
// events.
func RandomSchedule(r *rand.Rand, w Weather) Schedule {
	one := func() Attempt {
		a := Attempt{Fails: r.Float64() < w.Fails, Unheard: r.Float64() < w.Unheard}
		if r.Float64() < w.Late {
			a.Behind = 1 + r.IntN(cmp.Or(w.Behind, 5))
		}
		return a
	}
	return func(Delivery) []Attempt {
		if r.Float64() < w.Lost {
			return nil
		}
		list := []Attempt{one()}
		for r.Float64() < w.Doubled {
			list = append(list, one())
		}
		return list
	}
}
