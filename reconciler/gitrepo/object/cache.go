package object

import "sync"

// cacheWeight bounds the weight of one generation of a Cache. An entry of a
// directory weighs 1 and takes some hundred bytes.
const cacheWeight = 100_000

// Cache holds values that depend only on their key, such as the entries of a tree
// by its id. It has two generations; when the younger is full, the older is
// dropped. Callers must not modify the values. It is safe for concurrent use; the
// zero value is empty.
type Cache[K comparable, V any] struct {
	mu         sync.Mutex
	young, old map[K]weighed[V]
	weight     int // sum of the weights in young
}

type weighed[V any] struct {
	value  V
	weight int
}

func (c *Cache[K, V]) Get(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.young[key]
	if !ok {
		if v, ok = c.old[key]; ok {
			c.put(key, v)
		}
	}
	return v.value, ok
}

// Add stores a value of the given weight, unless it is too large.
func (c *Cache[K, V]) Add(key K, value V, weight int) {
	if weight > cacheWeight/10 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(key, weighed[V]{value, weight + 1})
}

func (c *Cache[K, V]) put(key K, v weighed[V]) {
	if c.young == nil || c.weight+v.weight > cacheWeight {
		c.old, c.young, c.weight = c.young, map[K]weighed[V]{}, 0
	}
	c.weight += v.weight - c.young[key].weight
	c.young[key] = v
}

// Clear removes all values.
func (c *Cache[K, V]) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.old, c.young, c.weight = nil, nil, 0
}

// Len returns the number of values kept.
func (c *Cache[K, V]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.young) + len(c.old)
}
