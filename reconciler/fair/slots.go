package fair

import (
	"context"
	"sync"
)

// MayTake reports whether an owner that has some of size places may take one more while the owners together have all. An owner takes
// another place only while it holds fewer than three times as many as are free, and the last one of four or more goes to an owner that
// has none.
// So one owner takes three quarters of the places at most, and of eight places two owners leave one, however long they keep theirs.
func MayTake(some, all, size int) bool {
	free := size - all
	return some == 0 && free > 0 || some < 3*free && (free > 1 || size < 4)
}

// Slots are a bounded number of slots. Owners take turns at them, and take what MayTake gives them. It is
// safe for concurrent use.
type Slots struct {
	size int

	mu      sync.Mutex
	all     int            // slots that are taken
	taken   map[string]int // by owner
	waiting *Queue[*waiter]
}

type waiter struct {
	owner   string
	granted chan struct{} // closed once it has a slot
}

// NewSlots makes size free slots.
func NewSlots(size int) *Slots {
	return &Slots{size: size, taken: map[string]int{}, waiting: NewQueue(func(w *waiter) string { return w.owner })}
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
	s.all--
	if s.taken[owner]--; s.taken[owner] == 0 {
		delete(s.taken, owner)
	}
	s.grant()
}

// grant gives the free slots away; with mu held.
func (s *Slots) grant() {
	for {
		w, ok := s.waiting.PopIf(func(owner string, _ *waiter) bool { return MayTake(s.taken[owner], s.all, s.size) })
		if !ok {
			return
		}
		s.all++
		s.taken[w.owner]++
		close(w.granted)
	}
}
