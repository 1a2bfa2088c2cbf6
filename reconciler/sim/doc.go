// Package sim has tests only. They run the reconciler as it is (its core, loop, apply and status writer) against models of Git, hosts,
// the runtime and the clock, in one process and on virtual time. Each run plays random schedules, make test 1,000 and make sim 100,000,
// and those that once found a fault.
//
// The estate of new schedules is wide: it has a rule with a webhook and one that holds a unit that is not ready, the clocks of its
// hosts are off, and people ask for operations on members, hold units and release them. A past schedule runs with the options
// with which it found its fault, because an added call would change it.
//
// One whole number is the seed of a schedule: of what people merge, and of each fault. A fault belongs to a call by its kind,
// daemon and count, so that it does not move when other calls do. What falls into one instant of virtual time may still run
// in another order when a schedule is replayed.
//
// It must not know an adapter, and nothing imports it.
package sim
