package policy

import (
	"maps"
	"slices"
	"sync"

	"berth/schema"
)

// mostResults limits the results that are kept of one tenant: of the last few estates,
// such as those in force, on main and in a pull request.
const mostResults = 4

// recent keeps the latest results of each tenant, newest first. The zero value is empty.
// Safe for concurrent use.
type recent[R any] struct {
	mu sync.Mutex
	of map[string][]R // a list never changes
}

func (r *recent[R]) get(tenant string) []R {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.of[tenant]
}

func (r *recent[R]) add(tenant string, result R) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[string][]R{}
	}
	all := r.of[tenant]
	r.of[tenant] = append([]R{result}, all[:min(len(all), mostResults-1)]...)
}

// forget drops tenants that no longer exist, once there are many.
func (r *recent[R]) forget(there map[string]*schema.TenantEstate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.of) > 2*len(there)+mostResults {
		maps.DeleteFunc(r.of, func(name string, _ []R) bool { return there[name] == nil })
	}
}

// drop drops results.
func (r *recent[R]) drop(is func(R) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, all := range r.of {
		r.of[name] = slices.DeleteFunc(slices.Clone(all), is)
	}
}
