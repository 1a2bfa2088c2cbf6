package loop

import "sync"

// goroutines runs functions at the same time. A goroutine whose function has returned takes the next one: the stack of a new
// one grows several times in a reconciliation, which copies it each time.
type goroutines struct {
	wg   sync.WaitGroup
	next chan func() // received by goroutines without a function
	done chan struct{}
}

func newGoroutines() *goroutines {
	return &goroutines{next: make(chan func()), done: make(chan struct{})}
}

// start starts a function, and does not wait.
func (g *goroutines) start(f func()) {
	select {
	case g.next <- f:
	default:
		g.wg.Go(func() { g.work(f) })
	}
}

// work runs f, and then the functions that come until end is called.
func (g *goroutines) work(f func()) {
	for {
		f()
		select {
		case f = <-g.next:
		case <-g.done:
			return
		}
	}
}

// end waits until all functions have returned, also those that they start, and ends the goroutines.
func (g *goroutines) end() {
	close(g.done)
	g.wg.Wait()
}
