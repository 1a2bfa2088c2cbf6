package estate

import (
	"slices"
	"sync"

	"berth/schema"
)

// recent keeps the results of the snapshots that were read last: a tree that was decided is the tree
// in force of the next decision. Only results without an unreadable part are kept, since a part can
// become readable. Safe for concurrent use.
type recent struct {
	mu   sync.Mutex
	kept []listing // newest first
}

// listing is the result of reading the listed parts.
type listing struct {
	parts  []schema.Part
	result *Result
}

// mostRecent is enough for main, the tree in force, and one pull request.
const mostRecent = 3

func (c *recent) get(parts []schema.Part) *Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.kept {
		if slices.Equal(l.parts, parts) {
			c.put(l)
			return l.result
		}
	}
	return nil
}

func (c *recent) add(parts []schema.Part, r *Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(listing{parts, r})
}

// put makes l the newest; with mu held.
func (c *recent) put(l listing) {
	kept := []listing{l}
	for _, other := range c.kept {
		if len(kept) < mostRecent && !slices.Equal(other.parts, l.parts) {
			kept = append(kept, other)
		}
	}
	c.kept = kept
}
