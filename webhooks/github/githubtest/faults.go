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

func (f *Fault) passes() bool { return f.DelayOnly }

// SecondaryLimit is a secondary limit, as 403 or 429, with its duration unless that is 0.
func SecondaryLimit(status int, wait time.Duration) Fault {
	f := Fault{Status: status, Message: secondary}
	if wait > 0 {
		f.Header = map[string]string{"Retry-After": strconv.Itoa(int(wait / time.Second))}
	}
	return f
}

// PrimaryLimit is the hourly limit, as 403 or 429.
func PrimaryLimit(status int, reset time.Time) Fault {
	return Fault{Status: status, Message: "API rate limit exceeded for installation ID 1.", Header: map[string]string{
		"X-RateLimit-Limit": "5000", "X-RateLimit-Remaining": "0", "X-RateLimit-Used": "5000", "X-RateLimit-Reset": strconv.FormatInt(reset.Unix(), 10),
	}}
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

// SetStorm sets the random faults, in addition to those of Inject; nil: none.
func (s *Server) SetStorm(storm Storm) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.storm = storm
}

// Inject adds a fault. Faults apply in the order in which they were added.
func (s *Server) Inject(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.Times == 0 {
		f.Times = 1
	}
	s.faults = append(s.faults, &f)
}

// fault returns the fault of the next request of an operation, or nil. The caller holds
// mu.
func (s *Server) fault(op string) *Fault {
	for _, f := range s.faults {
		if f.Times > 0 && (f.Op == "" || f.Op == op) {
			f.Times--
			return f
		}
	}
	if s.storm != nil {
		return s.storm(op)
	}
	return nil
}

// Unused lists faults that did not apply as often as they should: a test that injects a
// failure must see it.
func (s *Server) Unused() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, f := range s.faults {
		if f.Times > 0 {
			out = append(out, fmt.Sprintf("%s, status %d: %d times", f.Op, f.Status, f.Times))
		}
	}
	return out
}

// LearnLate keeps a pull request's head in the API unchanged for a number of reads,
// whatever is pushed: a webhook can be ahead of the API.
func (s *Server) LearnLate(pull, reads int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pull(pull)
	if p == nil {
		return errNoPull
	}
	p.late, p.lateHead = reads, p.head
	return nil
}
