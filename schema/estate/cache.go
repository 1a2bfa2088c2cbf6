package estate

import (
	"sync"
)

// cache keeps recently used trees by name and tree id, so equal content is read and
// judged once. All results about a tree are kept and dropped with it. Two generations
// limit the memory: when the younger one is too large, the older one is dropped. A hit
// moves the trees of a name to the younger generation.
type cache struct {
	most         int // trees of one name
	mu           sync.Mutex
	young, old   map[string]*history // by name of the tree
	weight       int                 // size of the younger generation
	hits, misses int
}

// heaviest limits the text, in bytes, of the trees of a generation.
const heaviest = 128 << 20

// mostTrees is the default of Options.Trees.
const mostTrees = 8

// of returns the history of a name.
func (c *cache) of(name string) *history {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.young[name]; h != nil {
		return h
	}
	h := c.old[name]
	if h == nil {
		h = &history{}
	}
	c.put(name, h)
	return h
}

func (c *cache) put(name string, h *history) {
	if c.weight >= heaviest || c.young == nil {
		c.old, c.young, c.weight = c.young, map[string]*history{}, 0
	}
	c.young[name] = h
	c.weight += h.weight
}

// get returns the tree with that name and tree id, or nil.
func (c *cache) get(name, id string) *tree {
	h := c.of(name)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.trees {
		if t.id == id {
			return t
		}
	}
	return nil
}

// count adds hits and misses.
func (c *cache) count(hits, misses int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hits, c.misses = c.hits+hits, c.misses+misses
}

func (c *cache) add(t *tree) {
	h := c.of(t.name)
	h.mu.Lock()
	was := h.weight
	h.trees = append([]*tree{t}, h.trees[:min(len(h.trees), c.most-1)]...)
	h.weight = 0
	for _, t := range h.trees {
		h.weight += t.size
	}
	grown := h.weight - was
	h.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.weight += grown; c.weight >= heaviest {
		c.put(t.name, h)
	}
}
