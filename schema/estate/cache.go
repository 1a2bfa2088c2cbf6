package estate

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"

	"berth/schema"
)

// cache keeps what was used lately: two generations, the older one dropped
// when the younger is full, which is at so many entries or at heaviest. A hit
// moves an entry to the younger.
type cache[K comparable, V any] struct {
	most       int
	weigh      func(V) int
	mu         sync.Mutex
	young, old map[K]V
	weight     int // of the younger
}

// heaviest is the text, in bytes, that the entries of a generation were made
// from: entries alone would be no bound, as a document may be of 64 KiB.
const heaviest = 128 << 20

func weightless[V any](V) int { return 0 }

// newCache makes a cache of so many entries a generation, which weigh tells the
// weight of.
func newCache[K comparable, V any](most int, weigh func(V) int) *cache[K, V] {
	return &cache[K, V]{most: most, weigh: weigh, young: map[K]V{}}
}

func (c *cache[K, V]) get(k K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v, ok := c.young[k]; ok {
		return v, true
	}
	v, ok := c.old[k]
	if ok {
		c.put(k, v)
	}
	return v, ok
}

func (c *cache[K, V]) add(k K, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(k, v)
}

func (c *cache[K, V]) put(k K, v V) {
	if len(c.young) >= c.most || c.weight >= heaviest {
		c.old, c.young, c.weight = c.young, map[K]V{}, 0
	}
	c.young[k] = v
	c.weight += c.weigh(v)
}

// recent are the last Results, newest first. The trees that are looked at
// differ little from each other: main, what is in force, and pull requests.
type recent struct {
	mu  sync.Mutex
	all []remembered
}

type remembered struct {
	id   [sha256.Size]byte // of all parts
	held *Result           // whose claims went first
	*Result
}

// identify is a fingerprint of parts: equal ones, equal files.
func identify(parts []schema.Part) (id [sha256.Size]byte) {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%s %s %t\x00", p.Name, p.Hash, p.Dir)
	}
	h.Sum(id[:0])
	return id
}

// find is the Result of these parts, beside these claims, or nil.
func (r *recent) find(id [sha256.Size]byte, held *Result) *Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.all, func(m remembered) bool { return m.id == id && (m.free || m.held == held) })
	if i < 0 {
		return nil
	}
	found := r.all[i]
	copy(r.all[1:i+1], r.all[:i])
	r.all[0] = found
	return found.Result
}

// last is the newest one in which nobody's claim is in the way of another's, or nil.
func (r *recent) last() *Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.all, func(m remembered) bool { return m.users.counted })
	if i < 0 {
		return nil
	}
	return r.all[i].Result
}

// part is the newest that was read of a name, or nil.
func (r *recent) part(name string) *part {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) == 0 {
		return nil
	}
	parts := r.all[0].parts
	i, ok := slices.BinarySearchFunc(parts, name, func(s *standing, n string) int { return strings.Compare(s.name, n) })
	if !ok {
		return nil
	}
	return parts[i].part
}

func (r *recent) add(id [sha256.Size]byte, held, of *Result) {
	const most = 8
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = slices.Insert(r.all, 0, remembered{id, held, of})
	r.all = r.all[:min(len(r.all), most)]
}
