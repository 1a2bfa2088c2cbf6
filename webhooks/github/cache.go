package github

import (
	"container/list"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
)

// cache keeps answers to reads with their ETags. GitHub does not count a read that it
// answers with "not modified", so a repeated read is free.
type cache struct {
	mu     sync.Mutex
	budget int // bytes of bodies
	size   int
	byURL  map[string]*list.Element
	recent *list.List // of *answer, the latest used first
}

type answer struct {
	key    string
	etag   string
	header http.Header
	body   []byte
}

func newCache(budget int) *cache {
	return &cache{budget: budget, byURL: map[string]*list.Element{}, recent: list.New()}
}

// prepare makes a read conditional if the cache has an answer. The key is "" for a
// request whose answer is not kept.
func (c *cache) prepare(req *http.Request) (key string, seen *answer) {
	if req.Method != http.MethodGet {
		return "", nil
	}
	key = req.Header.Get("Accept") + " " + req.URL.String()
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byURL[key]; e != nil {
		c.recent.MoveToFront(e)
		seen = e.Value.(*answer)
		req.Header.Set("If-None-Match", seen.etag)
	}
	return key, seen
}

// keep stores an answer, and drops the least recently used ones to stay in budget.
func (c *cache) keep(key string, resp *http.Response, body []byte) {
	etag := resp.Header.Get("ETag")
	if key == "" || resp.StatusCode != http.StatusOK || etag == "" || len(body) > c.budget/4 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byURL[key]; e != nil {
		c.drop(e)
	}
	c.byURL[key] = c.recent.PushFront(&answer{key: key, etag: etag, header: resp.Header.Clone(), body: body})
	c.size += len(body)
	for c.size > c.budget {
		c.drop(c.recent.Back())
	}
}

// grows says whether an answer is the full last page of a listing. A new page may
// follow it without changing its ETag.
func grows(u *url.URL, h http.Header, body []byte) bool {
	size, err := strconv.Atoi(u.Query().Get("per_page"))
	if err != nil || strings.Contains(h.Get("Link"), `rel="next"`) {
		return false
	}
	var items []json.RawMessage // other shapes have their own item count
	return json.Unmarshal(body, &items) == nil && len(items) >= size
}

func (c *cache) drop(e *list.Element) {
	a := c.recent.Remove(e).(*answer)
	delete(c.byURL, a.key)
	c.size -= len(a.body)
}
