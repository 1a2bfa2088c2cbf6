package loop

import (
	"sync"

	"berth/schema"
)

// turnsPerTenant bounds the verifications of one tenant that run at a time, hanging
// ones included: its registries occupy at most half of the workers.
const turnsPerTenant = artifactWorkers / 2

// tenantTurns lets each tenant run turnsPerTenant verifications at a time; the
// platform counts as a tenant. Others of that tenant wait in order, and occupy no
// worker. Safe for concurrent use.
type tenantTurns struct {
	mu       sync.Mutex
	byTenant map[string]*turns // tenants without a taken turn have no entry
}

// turns are those of one tenant.
type turns struct {
	taken   int // turnsPerTenant while any key waits
	waiting []schema.Key
	queued  map[schema.Key]bool // keys in waiting
	granted map[schema.Key]bool // keys whose turn is taken, and that are in the work queue
}

// take returns true if key may be verified now; release ends its turn. Otherwise key
// waits, and the release of another key returns it.
func (t *tenantTurns) take(key schema.Key) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.byTenant[key.Tenant]
	if of == nil {
		of = &turns{queued: map[schema.Key]bool{}, granted: map[schema.Key]bool{}}
		if t.byTenant == nil {
			t.byTenant = map[string]*turns{}
		}
		t.byTenant[key.Tenant] = of
	}
	switch {
	case of.granted[key]:
		delete(of.granted, key)
	case of.taken < turnsPerTenant:
		of.taken++
	default:
		if !of.queued[key] {
			of.waiting, of.queued[key] = append(of.waiting, key), true
		}
		return false
	}
	return true
}

// release ends the turn of key. If another key waits, it gets the turn and is
// returned; the caller has to enqueue it.
func (t *tenantTurns) release(key schema.Key) (next schema.Key, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.byTenant[key.Tenant]
	if len(of.waiting) > 0 {
		next, of.waiting = of.waiting[0], of.waiting[1:]
		delete(of.queued, next)
		of.granted[next] = true
		return next, true
	}
	if of.taken--; of.taken == 0 {
		delete(t.byTenant, key.Tenant)
	}
	return schema.Key{}, false
}
