package load

import "sync"

// cache keeps what was used lately: two generations, the older one dropped
// when the younger is full. A hit moves an entry to the younger.
type cache[K comparable, V any] struct {
	most       int
	mu         sync.Mutex
	young, old map[K]V
}

func newCache[K comparable, V any](most int) *cache[K, V] {
	return &cache[K, V]{most: most, young: map[K]V{}}
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
	if len(c.young) >= c.most {
		c.old, c.young = c.young, map[K]V{}
	}
	c.young[k] = v
}
