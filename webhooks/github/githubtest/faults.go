package githubtest

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// Fault makes requests fail.
type Fault struct {
	Op    string // operation, as in Request.Op; "": any
	Times int    // number of requests; 0: one
	// With Carry the request is carried out, and only its answer fails.
	Carry   bool
	Status  int // of the answer; 0: the connection is cut without one
	Message string
	Header  map[string]string
	// Delay is the wait before everything else. With DelayOnly, the request is served
	// as usual afterwards.
	Delay     time.Duration
	DelayOnly bool
}

// reply is the failed answer; its status is 0 if the connection is cut.
func (f *Fault) reply() *reply {
	a := problem(f.Status, f.Message)
	a.header = http.Header{}
	for k, v := range f.Header {
		a.header.Set(k, v)
	}
	return a
}

// SecondaryLimit is a secondary limit, as 403 or 429, with its duration unless that is 0.
func SecondaryLimit(status int, wait time.Duration) Fault {
	f := Fault{Status: status, Message: secondaryLimit}
	if wait > 0 {
		f.Header = map[string]string{"Retry-After": strconv.Itoa(int(wait / time.Second))}
	}
	return f
}

// Storm returns the fault of a request, or nil. It is called for one request at a time.
type Storm func(op string) *Fault

// RandomStorm fails requests with probability p, from 0 to 1: errors and cut
// connections, before and after the request is carried out, and limits. Equal sources
// give equal faults for equal requests.
func RandomStorm(r *rand.Rand, p float64) Storm {
	return func(string) *Fault {
		if r.Float64() >= p {
			return nil
		}
		all := []Fault{
			{Status: http.StatusInternalServerError}, {Status: http.StatusBadGateway, Carry: true}, {}, {Carry: true},
			{Status: http.StatusServiceUnavailable, Header: map[string]string{"Retry-After": "1"}},
			SecondaryLimit(http.StatusForbidden, time.Second), SecondaryLimit(http.StatusTooManyRequests, time.Second),
		}
		return &all[r.IntN(len(all))]
	}
}

// faults are the injected failures.
type faults struct {
	*base
	list  []*Fault
	storm Storm
}

// SetStorm sets the random faults, in addition to those of Inject; nil: none.
func (s *faults) SetStorm(storm Storm) {
	defer s.lock()()
	s.storm = storm
}

// Inject adds a fault. Faults apply in the order in which they were added.
func (s *faults) Inject(f Fault) {
	defer s.lock()()
	f.Times = max(f.Times, 1)
	s.list = append(s.list, &f)
}

// nextFault returns the fault of the next request of an operation, or nil.
func (s *faults) nextFault(op string) *Fault {
	if f := find(s.list, func(f *Fault) bool { return f.Times > 0 && (f.Op == "" || f.Op == op) }); f != nil {
		f.Times--
		return f
	}
	if s.storm != nil {
		return s.storm(op)
	}
	return nil
}

// Unused lists faults that did not apply as often as they should: a test that injects a
// failure must see it.
func (s *faults) Unused() []string {
	defer s.lock()()
	var out []string
	for _, f := range s.list {
		if f.Times > 0 {
			out = append(out, fmt.Sprintf("%s, status %d: %d times", f.Op, f.Status, f.Times))
		}
	}
	return out
}
