package api

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Rate is so many a second on average, and so many at once.
type Rate struct {
	PerSecond float64
	Burst     int
}

// limiter bounds how often each of many may do something, in bounded memory:
// who was not heard of for the last `remembered` others starts anew.
type limiter struct {
	rate Rate

	mu       sync.Mutex
	now, old map[string]*rate.Limiter
}

// remembered is how many are told apart, once in each of two generations.
const remembered = 4096

func newLimiter(r Rate) *limiter {
	return &limiter{rate: r, now: map[string]*rate.Limiter{}}
}

func (l *limiter) allow(who string, at time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	one, ok := l.now[who]
	if !ok {
		if one, ok = l.old[who]; !ok {
			one = rate.NewLimiter(rate.Limit(l.rate.PerSecond), l.rate.Burst)
		}
		if len(l.now) >= remembered {
			l.now, l.old = map[string]*rate.Limiter{}, l.now
		}
		l.now[who] = one
	}
	return one.AllowN(at, 1)
}

// remote is whom a failed authentication is counted against: an IPv4 address,
// or the /64 that an IPv6 host may choose from.
func remote(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	ip = ip.Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	p, err := ip.Prefix(64)
	if err != nil {
		return host
	}
	return p.String()
}
