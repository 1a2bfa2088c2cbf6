package githubtest

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// budget is what a token has used of its limits.
type budget struct {
	window time.Time // when the hour began
	used   int
	writes []time.Time // of the last hour
}

func (s *Server) budgetOf(token string) *budget {
	b := s.spent[token]
	if b == nil {
		b = &budget{}
		s.spent[token] = b
	}
	return b
}

// refuse says no to a request that is beyond a limit.
func (b *budget) refuse(now time.Time, method string, l Limits) *wire {
	if now.Sub(b.window) >= time.Hour {
		b.window, b.used = now.Truncate(time.Second), 0
	}
	for len(b.writes) > 0 && now.Sub(b.writes[0]) >= time.Hour {
		b.writes = b.writes[1:]
	}
	status := http.StatusForbidden
	if l.TooMany {
		status = http.StatusTooManyRequests
	}
	if b.used >= l.PerHour {
		a := problemWire(&problem{status, "API rate limit exceeded for this token."})
		b.head(a.header, l)
		return &a
	}
	if method == http.MethodGet {
		return nil
	}
	minute, first := 0, -1
	for i, at := range b.writes {
		if now.Sub(at) < time.Minute {
			if minute++; first < 0 {
				first = i
			}
		}
	}
	var wait time.Duration
	switch {
	case len(b.writes) >= l.ContentPerHour:
		wait = time.Hour - now.Sub(b.writes[0])
	case minute >= l.ContentPerMinute:
		wait = time.Minute - now.Sub(b.writes[first])
	default:
		return nil
	}
	a := problemWire(&problem{status, "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."})
	a.header.Set("Retry-After", strconv.Itoa(int(wait/time.Second)+1))
	b.head(a.header, l)
	return &a
}

// count takes one request off the budget.
func (b *budget) count(now time.Time, method string) {
	b.used++
	if method != http.MethodGet {
		b.writes = append(b.writes, now)
	}
}

// head writes what is left into an answer's header.
func (b *budget) head(h http.Header, l Limits) {
	h.Set("X-RateLimit-Limit", strconv.Itoa(l.PerHour))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(max(0, l.PerHour-b.used)))
	h.Set("X-RateLimit-Used", strconv.Itoa(b.used))
	h.Set("X-RateLimit-Reset", strconv.FormatInt(b.window.Add(time.Hour).Unix(), 10))
	h.Set("X-RateLimit-Resource", "core")
}

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
