package estate

import (
	"crypto/sha256"
	"slices"
	"sync"

	"berth/schema"
	"berth/schema/load"
)

// cache keeps recently used trees by name and tree id, so equal content is read and
// judged once. All results about a tree are kept and dropped with it. Two generations
// limit the memory: when the younger one is too large, the older one is dropped. A hit
// moves the trees of a name to the younger generation.
type cache struct {
	mu           sync.Mutex
	young, old   map[string]*history // by name of the tree
	weight       int                 // size of the younger generation
	hits, misses int
}

// heaviest limits the text, in bytes, of the trees of a generation.
const heaviest = 128 << 20

// mostTrees limits the trees of one name: those of main, of the tree in force, and of
// pull requests.
const mostTrees = 8

// history is the latest trees of one name, newest first.
type history struct {
	mu       sync.Mutex
	trees    []*tree
	weight   int
	projects memo[[sha256.Size]byte, *schema.ProjectEstate] // by name and documents
}

// CacheStats counts the hits and misses of a Loader's cache.
type CacheStats struct {
	Hits, Misses int // trees from the cache, and trees read
	Bytes        int // text of the trees in the younger generation
}

// CacheStats returns the counts since the Loader was made.
func (l *Loader) CacheStats() CacheStats {
	l.cache.mu.Lock()
	defer l.cache.mu.Unlock()
	return CacheStats{l.cache.hits, l.cache.misses, l.cache.weight}
}

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
	h.trees = append([]*tree{t}, h.trees[:min(len(h.trees), mostTrees-1)]...)
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

// content returns the content of one of the trees with these documents and pages, or nil.
func (h *history) content(docs []*load.Document, pages []string) *content {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.trees {
		if t.excess == nil && slices.Equal(t.docs, docs) && slices.Equal(t.pages, pages) {
			return t.content
		}
	}
	return nil
}

// document returns the document of the file f in one of the trees, or nil.
func (h *history) document(f schema.File) *load.Document {
	for _, t := range h.trees {
		if doc := t.byFile[f.Path]; doc != nil && doc.File.Blob == f.Blob && doc.File.Mode == f.Mode {
			return doc
		}
	}
	return nil
}
