package api

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Rate is an average rate and a burst.
type Rate struct {
	PerSecond float64
	Burst     int
}

// limiter bounds the rate of each caller, in bounded memory: a caller not seen since
// the last maxCallers other callers starts with a full burst.
type limiter struct {
	rate Rate

	mu       sync.Mutex
	now, old map[string]*rate.Limiter
}

// maxCallers is the size of each of the two generations of callers.
const maxCallers = 4096

func newLimiter(r Rate) *limiter {
	return &limiter{rate: r, now: map[string]*rate.Limiter{}}
}

func (l *limiter) allow(who string, at time.Time) bool { return l.allowAt(who, l.rate, at) }

// allowAt is allow for a rate that may differ from that of the calls before.
func (l *limiter) allowAt(who string, r Rate, at time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	one, ok := l.now[who]
	if !ok {
		if one, ok = l.old[who]; !ok {
			one = rate.NewLimiter(rate.Limit(r.PerSecond), r.Burst)
		}
		if len(l.now) >= maxCallers {
			l.now, l.old = map[string]*rate.Limiter{}, l.now
		}
		l.now[who] = one
	}
	if one.Burst() != r.Burst {
		one.SetLimitAt(at, rate.Limit(r.PerSecond))
		one.SetBurstAt(at, r.Burst)
	}
	return one.AllowN(at, 1)
}

// remote is the address that an authentication failure counts against: an IPv4
// address, or the /64 prefix of an IPv6 address, which one host may use whole.
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
