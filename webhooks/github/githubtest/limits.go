package githubtest

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Limits are GitHub's limits; zero values are GitHub's figures. Each is for one user or
// installation, whatever the tokens.
type Limits struct {
	PerHour          int // requests, but those answered 304: 5,000
	ContentPerMinute int // requests that create content: 80
	ContentPerHour   int // the same: 500
	PointsPerMinute  int // 1 for a request that reads, 5 for one that writes: 900
	Concurrent       int // requests at the same time: 100
	PerPage          int // items of a list in one answer, whatever is asked for: 100
	// TooMany makes a limit a 429 instead of a 403; GitHub uses both.
	TooMany bool
	// Silent omits the duration; GitHub does not always give it.
	Silent bool
}

func (l *Limits) defaults() {
	for n, to := range map[*int]int{&l.PerHour: 5000, &l.ContentPerMinute: 80, &l.ContentPerHour: 500, &l.PointsPerMinute: 900, &l.Concurrent: 100, &l.PerPage: maxPerPage} {
		if *n == 0 {
			*n = to
		}
	}
}

// Kind is the class of a request for GitHub's limits.
type Kind int

// The kinds. Creating an App's token and a redelivery are Other.
const (
	Reading Kind = iota
	Creating
	Editing
	Deleting
	Other
)

func kind(op string) Kind {
	method, path, _ := strings.Cut(op, " ")
	switch {
	case method == http.MethodGet:
		return Reading
	case !strings.HasPrefix(path, "/repos/") || strings.HasSuffix(path, "/attempts"):
		return Other
	case method == http.MethodPost:
		return Creating
	case method == http.MethodDelete:
		return Deleting
	}
	return Editing
}

// Kind of a request.
func (r Request) Kind() Kind { return kind(r.Op) }

// Writes counts write requests.
type Writes struct{ Creating, Editing, Deleting int }

// Writes counts the write requests among Requests, whatever their results.
func (s *Server) Writes() (w Writes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.requests {
		switch r.Kind() {
		case Creating:
			w.Creating++
		case Editing:
			w.Editing++
		case Deleting:
			w.Deleting++
		}
	}
	return w
}

// Usage is the highest use of the limits. If Refused is 0, all were kept.
type Usage struct {
	Requests, NotModified, Creating, Editing int
	Refused                                  int // for a limit
	// The most in any window of the length the limit is for, and at once.
	PeakHour, PeakCreatingMinute, PeakCreatingHour, PeakPoints, PeakConcurrent int
}

// Usage of who acts as login: a person, or "slug[bot]".
func (s *Server) Usage(login string) Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.budgetOf(login).Usage
}

// budget is a user's use of the limits.
type budget struct {
	Usage
	window time.Time // when GitHub's hour began
	used   int
	spent  []spending // of the last hour, oldest first
	atOnce int
}

type spending struct {
	at       time.Time
	points   int
	creating bool
	counts   bool // against the hour; a 304 does not
}

func (s *Server) budgetOf(login string) *budget {
	b := s.spent[login]
	if b == nil {
		b = &budget{}
		s.spent[login] = b
	}
	return b
}

// sum is the use in the windows that end now.
type sum struct {
	points, minute, hour, requests int
	firstMinute, firstHour         time.Time // when the first of each was created
	firstPoint                     time.Time
}

func (b *budget) sum(now time.Time) (n sum) {
	for len(b.spent) > 0 && now.Sub(b.spent[0].at) >= time.Hour {
		b.spent = b.spent[1:]
	}
	first := func(t *time.Time, at time.Time) {
		if t.IsZero() {
			*t = at
		}
	}
	for _, x := range b.spent {
		if x.counts {
			n.requests++
		}
		if x.creating {
			n.hour++
			first(&n.firstHour, x.at)
		}
		if now.Sub(x.at) < time.Minute {
			n.points += x.points
			first(&n.firstPoint, x.at)
			if x.creating {
				n.minute++
				first(&n.firstMinute, x.at)
			}
		}
	}
	return n
}

func points(k Kind) int {
	if k == Reading {
		return 1
	}
	return 5
}

// refuse refuses a request that is beyond a limit.
func (b *budget) refuse(now time.Time, k Kind, l Limits) *wire {
	if now.Sub(b.window) >= time.Hour {
		b.window, b.used = now.Truncate(time.Second), 0
	}
	if b.used >= l.PerHour {
		return b.no(0, "API rate limit exceeded for installation ID 1.", l)
	}
	n := b.sum(now)
	var wait time.Duration
	switch {
	case b.atOnce > l.Concurrent:
		wait = time.Second
	case k == Creating && n.hour >= l.ContentPerHour:
		wait = time.Hour - now.Sub(n.firstHour)
	case k == Creating && n.minute >= l.ContentPerMinute:
		wait = time.Minute - now.Sub(n.firstMinute)
	case n.points+points(k) > l.PointsPerMinute:
		wait = time.Minute - now.Sub(n.firstPoint)
	default:
		return nil
	}
	return b.no(wait, secondary, l)
}

const secondary = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."

// no refuses for a limit; wait is 0 for the primary limit.
func (b *budget) no(wait time.Duration, why string, l Limits) *wire {
	b.Refused++
	status := http.StatusForbidden
	if l.TooMany {
		status = http.StatusTooManyRequests
	}
	a := problemWire(&problem{status, why})
	if wait > 0 && !l.Silent {
		a.header.Set("Retry-After", strconv.Itoa(int(wait/time.Second)+1))
	}
	b.head(a.header, l)
	return &a
}

// count adds one request to the use.
func (b *budget) count(now time.Time, k Kind, notModified bool) {
	b.spent = append(b.spent, spending{now, points(k), k == Creating, !notModified})
	b.Requests++
	if notModified {
		b.NotModified++
	} else {
		b.used++
	}
	switch k {
	case Creating:
		b.Creating++
	case Editing:
		b.Editing++
	}
	n := b.sum(now)
	b.PeakHour, b.PeakPoints = max(b.PeakHour, n.requests), max(b.PeakPoints, n.points)
	b.PeakCreatingMinute, b.PeakCreatingHour = max(b.PeakCreatingMinute, n.minute), max(b.PeakCreatingHour, n.hour)
}

// head writes the remaining budget into an answer's header.
func (b *budget) head(h http.Header, l Limits) {
	h.Set("X-RateLimit-Limit", strconv.Itoa(l.PerHour))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(max(0, l.PerHour-b.used)))
	h.Set("X-RateLimit-Used", strconv.Itoa(b.used))
	h.Set("X-RateLimit-Reset", strconv.FormatInt(b.window.Add(time.Hour).Unix(), 10))
	h.Set("X-RateLimit-Resource", "core")
}

// enter and leave count the concurrent requests.
func (s *Server) enter(login string) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.budgetOf(login)
	b.atOnce++
	b.PeakConcurrent = max(b.PeakConcurrent, b.atOnce)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		b.atOnce--
	}
}
