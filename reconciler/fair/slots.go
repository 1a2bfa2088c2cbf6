package fair

import (
	"context"
	"sync"
)

// Slots are a bounded number of slots. While all are taken, the owners that wait for one take turns. It is
// safe for concurrent use.
type Slots struct {
	perOwner int // slots of one owner at a time

	mu      sync.Mutex
	free    int
	taken   map[string]int // by owner
	waiting *Queue[*waiter]
}

type waiter struct {
	owner   string
	granted chan struct{} // closed once it has a slot
}

// NewSlots makes size free slots. One owner has at most perOwner of them at a time; if that is less than size, the rest is
// for others.
func NewSlots(size, perOwner int) *Slots {
	return &Slots{perOwner: perOwner, free: size, taken: map[string]int{}, waiting: NewQueue(func(w *waiter) string { return w.owner })}
}

// Take waits for a slot at the turn of an owner. The caller calls give once it needs the slot no more. The
// error is the cause of the end of ctx.
func (s *Slots) Take(ctx context.Context, owner string) (give func(), err error) {
	w := &waiter{owner, make(chan struct{})}
	s.mu.Lock()
	s.waiting.Push(w)
	s.grant()
	s.mu.Unlock()
	select {
	case <-w.granted:
		return func() { s.give(owner) }, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	isGranted := !s.waiting.Remove(w)
	s.mu.Unlock()
	if isGranted {
		s.give(owner)
	}
	return nil, context.Cause(ctx)
}

func (s *Slots) give(owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free++
	if s.taken[owner]--; s.taken[owner] == 0 {
		delete(s.taken, owner)
	}
	s.grant()
}

// grant gives the free slots away; with mu held.
func (s *Slots) grant() {
	for s.free > 0 {
		w, ok := s.waiting.PopIf(func(owner string, _ *waiter) bool { return s.taken[owner] < s.perOwner })
		if !ok {
			return
		}
		s.free--
		s.taken[w.owner]++
		close(w.granted)
	}
}
