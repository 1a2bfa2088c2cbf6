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
}

func (l *Limits) setDefaults() {
	for n, to := range map[*int]int{&l.PerHour: 5000, &l.ContentPerMinute: 80, &l.ContentPerHour: 500, &l.PointsPerMinute: 900,
		&l.Concurrent: 100, &l.PerPage: maxPerPage} {
		if *n == 0 {
			*n = to
		}
	}
}

// kind is the class of a request for GitHub's limits.
type kind int

// The kinds. Creating an App's token is other.
const (
	reading kind = iota
	creating
	editing
	deleting
	other
)

func kindOf(op string) kind {
	method, path, _ := strings.Cut(op, " ")
	switch {
	case method == http.MethodGet:
		return reading
	case !strings.HasPrefix(path, "/repos/"):
		return other
	case method == http.MethodPost:
		return creating
	case method == http.MethodDelete:
		return deleting
	}
	return editing
}

// points is the cost of a request.
func (k kind) points() int {
	if k == reading {
		return 1
	}
	return 5
}

// creations is 1 for a request that creates content.
func (k kind) creations() int {
	if k == creating {
		return 1
	}
	return 0
}

// Usage is the highest use of the limits. If Refused is 0, all were kept.
type Usage struct {
	Requests, Creating, Editing int
	Refused                     int // for a limit
	// The most in any window of the length the limit is for, and at once.
	PeakCreatingMinute, PeakCreatingHour, PeakPoints, PeakConcurrent int
}

// limiter counts the requests of each user and refuses those beyond a limit.
type limiter struct {
	*base
	use map[string]*budget // by login
}

// Usage of who acts as login: a person, or "slug[bot]".
func (s *limiter) Usage(login string) Usage {
	defer s.lock()()
	return s.budgetOf(login).Usage
}

func (s *limiter) budgetOf(login string) *budget {
	if s.use[login] == nil {
		s.use[login] = &budget{limits: s.o.Limits}
	}
	return s.use[login]
}

// enter counts a concurrent request until leave is called.
func (s *limiter) enter(login string) (leave func()) {
	defer s.lock()()
	b := s.budgetOf(login)
	b.atOnce++
	b.PeakConcurrent = max(b.PeakConcurrent, b.atOnce)
	return func() {
		defer s.lock()()
		b.atOnce--
	}
}

func (s *limiter) getRate(c *call) reply {
	b := s.budgetOf(c.who.actor())
	rate := obj{"limit": b.limits.PerHour, "remaining": b.remaining(), "used": b.used, "reset": b.hour.Add(time.Hour).Unix()}
	return ok(obj{"resources": obj{"core": rate, "search": rate}, "rate": rate})
}

// budget is a user's use of the limits.
type budget struct {
	Usage
	limits Limits
	hour   time.Time // when GitHub's hour began
	used   int       // of it
	spent  []spending
	atOnce int
}

// spending is a request of the last hour.
type spending struct {
	at time.Time
	kind
}

func (b *budget) remaining() int { return max(0, b.limits.PerHour-b.used) }

// window is a secondary limit: the most that requests may cost in any time of a length.
type window struct {
	length time.Duration
	most   int
	cost   func(kind) int
	peak   *int
}

func (b *budget) windows() []window {
	return []window{
		{time.Hour, b.limits.ContentPerHour, kind.creations, &b.PeakCreatingHour},
		{time.Minute, b.limits.ContentPerMinute, kind.creations, &b.PeakCreatingMinute},
		{time.Minute, b.limits.PointsPerMinute, kind.points, &b.PeakPoints},
	}
}

// sum is the cost of the requests in a window that ends now. The first of them leaves it
// after wait.
func (b *budget) sum(w window, now time.Time) (cost int, wait time.Duration) {
	for _, x := range b.spent {
		if n := w.cost(x.kind); n > 0 && now.Sub(x.at) < w.length {
			if cost == 0 {
				wait = w.length - now.Sub(x.at)
			}
			cost += n
		}
	}
	return cost, wait
}

const (
	primaryLimit   = "API rate limit exceeded for installation ID 1."
	secondaryLimit = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
)

// refuse returns the answer to a request that is beyond a limit, or nil.
func (b *budget) refuse(now time.Time, k kind) *reply {
	if now.Sub(b.hour) >= time.Hour {
		b.hour, b.used = now.Truncate(time.Second), 0
	}
	for len(b.spent) > 0 && now.Sub(b.spent[0].at) >= time.Hour {
		b.spent = b.spent[1:]
	}
	if b.remaining() == 0 {
		return b.refusal(primaryLimit, 0)
	}
	if b.atOnce > b.limits.Concurrent {
		return b.refusal(secondaryLimit, time.Second)
	}
	for _, w := range b.windows() {
		if n := w.cost(k); n > 0 {
			if cost, wait := b.sum(w, now); cost+n > w.most {
				return b.refusal(secondaryLimit, wait)
			}
		}
	}
	return nil
}

// refusal is the answer for a limit; wait is 0 for the primary limit.
func (b *budget) refusal(message string, wait time.Duration) *reply {
	b.Refused++
	a := problem(http.StatusForbidden, message)
	a.header = http.Header{}
	if wait > 0 {
		a.header.Set("Retry-After", strconv.Itoa(int(wait/time.Second)+1))
	}
	b.writeHeader(a.header)
	return a
}

// count adds one request to the use. A 304 does not count against the hour.
func (b *budget) count(now time.Time, k kind, notModified bool) {
	b.spent = append(b.spent, spending{now, k})
	b.Requests++
	if !notModified {
		b.used++
	}
	switch k {
	case creating:
		b.Creating++
	case editing:
		b.Editing++
	}
	for _, w := range b.windows() {
		cost, _ := b.sum(w, now)
		*w.peak = max(*w.peak, cost)
	}
}

// writeHeader writes the remaining budget into an answer's header.
func (b *budget) writeHeader(h http.Header) {
	h.Set("X-RateLimit-Limit", strconv.Itoa(b.limits.PerHour))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(b.remaining()))
	h.Set("X-RateLimit-Used", strconv.Itoa(b.used))
	h.Set("X-RateLimit-Reset", strconv.FormatInt(b.hour.Add(time.Hour).Unix(), 10))
	h.Set("X-RateLimit-Resource", "core")
}
