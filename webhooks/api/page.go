package api

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	defaultLimit = 100
	maxLimit     = 500
	maxCursor    = 512
)

// listing is a list before it is cut into pages: the names of its items, and how to
// make each item.
type listing struct {
	names []string
	at    func(name string) any

	filters map[string]filter           // by query parameter; nil: the list takes none
	created func(name string) time.Time // for order=newest; nil: the list is ordered by name only
}

// filter selects the items of a list that match a query parameter.
type filter struct {
	values []string // the valid values; nil: any name
	keep   func(name, value string) bool
}

// The orders of a list.
const (
	orderName   = "name" // the default
	orderNewest = "newest"
)

// page is a part of a listing. The next page begins after the last name of this one,
// also if items were added or removed meanwhile.
type page struct {
	Items      []any  `json:"items"`
	NextCursor string `json:"next_cursor,omitempty"`
}

// parameters lists the valid query parameters, sorted.
func (l *listing) parameters() []string {
	out := append(slices.Collect(maps.Keys(l.filters)), "limit", "cursor")
	if l.created != nil {
		out = append(out, "order")
	}
	slices.Sort(out)
	return out
}

// ask applies a query's filters and order, and returns the normalised query without
// limit and cursor: a cursor is valid for one query only.
func (l *listing) ask(q url.Values) (asked string, fail *failure) {
	kept := url.Values{}
	for _, name := range slices.Sorted(maps.Keys(q)) {
		if fault := l.fault(name, q[name]); fault != "" {
			return "", &failure{code: codeQuery, message: fault}
		}
		if f, ok := l.filters[name]; ok {
			value := q.Get(name)
			l.names = slices.DeleteFunc(l.names, func(item string) bool { return !f.keep(item, value) })
			kept.Set(name, value)
		}
	}
	if l.created != nil && q.Get("order") == orderNewest {
		kept.Set("order", orderNewest)
		for i, item := range l.names {
			l.names[i] = newestKey(l.created(item), item)
		}
	}
	return kept.Encode(), nil
}

// fault describes what is wrong with a query parameter; "": nothing is.
func (l *listing) fault(name string, values []string) string {
	takes, value := l.parameters(), values[0]
	f, filters := l.filters[name]
	switch {
	case !slices.Contains(takes, name):
		return "unknown query parameter: this list takes " + strings.Join(takes, ", ")
	case len(values) > 1:
		return name + " is given twice; give it once"
	case name == "order" && value != orderName && value != orderNewest:
		return fmt.Sprintf("order is %s or %s", orderName, orderNewest)
	case filters && f.values != nil && !slices.Contains(f.values, value):
		return fmt.Sprintf("%s is one of %s", name, strings.Join(f.values, ", "))
	case filters && f.values == nil && !parameter.MatchString(value):
		return name + " is a name"
	}
	return ""
}

// newestKey sorts newer items first, items of one time by name, and items of an
// unknown time last.
func newestKey(created time.Time, name string) string {
	age := uint64(math.MaxInt64)
	if !created.IsZero() {
		age = uint64(math.MaxInt64 - max(created.Unix(), 0))
	}
	return fmt.Sprintf("%020d %s", age, name)
}

// cut returns the page of a listing that a query asks for. where identifies the list.
func (l listing) cut(where string, q url.Values) (page, *failure) {
	limit, after := defaultLimit, ""
	asked, fail := l.ask(q)
	if fail != nil {
		return page{}, fail
	}
	if asked != "" {
		where += "?" + asked
	}
	at := l.at
	if l.created != nil && q.Get("order") == orderNewest {
		at = func(key string) any {
			_, name, _ := strings.Cut(key, " ")
			return l.at(name)
		}
	}
	if q.Has("limit") {
		n, err := strconv.Atoi(q.Get("limit"))
		if err != nil || n < 1 || n > maxLimit {
			return page{}, &failure{code: codeQuery, message: fmt.Sprintf("limit is a number from 1 to %d", maxLimit)}
		}
		limit = n
	}
	if q.Has("cursor") {
		name, ok := readCursor(where, q.Get("cursor"))
		if !ok {
			return page{}, &failure{code: codeCursor,
				message: "the cursor is not valid for this list: use next_cursor of its last page unchanged, or start without a cursor"}
		}
		after = name
	}
	slices.Sort(l.names)
	from, found := slices.BinarySearch(l.names, after)
	if found {
		from++
	}
	to := min(from+limit, len(l.names))
	p := page{Items: make([]any, 0, to-from)}
	for _, name := range l.names[from:to] {
		p.Items = append(p.Items, at(name))
	}
	if to < len(l.names) {
		p.NextCursor = cursor(where, l.names[to-1])
	}
	return p, nil
}

// cursor marks a page that ended with name. Its checksum binds it to its list and
// detects damage. It grants nothing: a forged cursor starts at another name of a list
// that the caller may read anyway.
func cursor(where, name string) string {
	sum := sha256.Sum256([]byte("berth cursor\x00" + where + "\x00" + name))
	return base64.RawURLEncoding.EncodeToString(append(sum[:12], name...))
}

func readCursor(where, s string) (name string, ok bool) {
	if len(s) > maxCursor {
		return "", false
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(raw) <= 12 {
		return "", false
	}
	name = string(raw[12:])
	return name, cursor(where, name) == s
}

// parameter matches the values of a template's parameters: names, uids, project ids.
var parameter = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9_.]{0,99}$`)
