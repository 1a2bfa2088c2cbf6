package githubtest

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// Fault is a way for requests to fail.
type Fault struct {
	Op    string // the operation it strikes, as in Request.Op; "": any
	Times int    // how many requests it strikes; 0 is one
	// Carry has the request carried out all the same: the answer is wrong, not
	// what it says nothing of.
	Carry   bool
	Status  int // of the answer; 0: the connection is cut without one
	Message string
	Header  map[string]string
	// Delay comes before everything else. With Carry unset, Status 0 and
	// DelayOnly, the request is served as usual after it.
	Delay     time.Duration
	DelayOnly bool
}

func (f *Fault) passes() bool { return f.DelayOnly }

// SecondaryLimit is one of GitHub's, as 403 or 429. It says for how long, unless
// that is 0.
func SecondaryLimit(status int, wait time.Duration) Fault {
	f := Fault{Status: status, Message: secondary}
	if wait > 0 {
		f.Header = map[string]string{"Retry-After": strconv.Itoa(int(wait / time.Second))}
	}
	return f
}

// PrimaryLimit is GitHub's of an hour, as 403 or 429.
func PrimaryLimit(status int, reset time.Time) Fault {
	return Fault{Status: status, Message: "API rate limit exceeded for installation ID 1.", Header: map[string]string{
		"X-RateLimit-Limit": "5000", "X-RateLimit-Remaining": "0", "X-RateLimit-Used": "5000", "X-RateLimit-Reset": strconv.FormatInt(reset.Unix(), 10),
	}}
}

// Storm says what strikes a request of an operation, nil if nothing does. It is
// called for one request at a time.
type Storm func(op string) *Fault

// RandomStorm strikes with the likelihood p, from 0 to 1: errors and cut
// connections, before and after the request was carried out, and limits. The
// same source gives the same for the same requests.
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

// SetStorm says what strikes requests from now on, beside what Inject has strike
// them; nil is nothing.
func (s *Server) SetStorm(storm Storm) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.storm = storm
}

// Inject adds a fault. Faults strike in the order in which they were added.
func (s *Server) Inject(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.Times == 0 {
		f.Times = 1
	}
	s.faults = append(s.faults, &f)
}

// fault is what strikes the next request of an operation, or nil. The caller
// holds mu.
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

// Unused lists faults that struck less often than they were to: a test that
// wants to see a failure must see it.
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

// LearnLate has the API show a pull request's head as it is now until the pull
// request was read or listed so often, whatever is pushed: a webhook can be ahead
// of what the API knows.
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
