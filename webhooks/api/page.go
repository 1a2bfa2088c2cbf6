package api

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const (
	defaultLimit = 100
	maxLimit     = 500
	maxCursor    = 512
)

// listing is a whole list before it is cut into pages: the names of its items,
// and how each is made.
type listing struct {
	names []string
	at    func(name string) any
}

// page is a piece of a listing. The next one begins after the last name of
// this one, whatever came or went meanwhile.
type page struct {
	Items      []any  `json:"items"`
	NextCursor string `json:"next_cursor,omitempty"`
}

// cut is the page of a listing that a query asks for. where names the list.
func (l listing) cut(where string, q url.Values) (page, *failure) {
	limit, after := defaultLimit, ""
	for name, values := range q {
		if name != "limit" && name != "cursor" {
			return page{}, &failure{status: http.StatusBadRequest, code: codeQuery, message: "a list takes limit and cursor, and nothing else: take the rest away"}
		}
		if len(values) > 1 {
			return page{}, &failure{status: http.StatusBadRequest, code: codeQuery, message: name + " is there twice: say it once"}
		}
	}
	if q.Has("limit") {
		n, err := strconv.Atoi(q.Get("limit"))
		if err != nil || n < 1 || n > maxLimit {
			return page{}, &failure{status: http.StatusBadRequest, code: codeQuery, message: fmt.Sprintf("limit is a number from 1 to %d", maxLimit)}
		}
		limit = n
	}
	if q.Has("cursor") {
		name, ok := readCursor(where, q.Get("cursor"))
		if !ok {
			return page{}, &failure{status: http.StatusBadRequest, code: codeCursor, message: "this is no cursor of this list: take next_cursor of its last page as it is, or begin anew without one"}
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
		p.Items = append(p.Items, l.at(name))
	}
	if to < len(l.names) {
		p.NextCursor = cursor(where, l.names[to-1])
	}
	return p, nil
}

// cursor says that a page ended with name. Its checksum binds it to its list
// and shows damage. It is no secret and no permission: whoever makes one up
// can but begin at another name of a list he may read anyway, and so it outlives
// a restart.
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

// matches says whether an If-None-Match header names etag.
func matches(header, etag string) bool {
	for one := range strings.SplitSeq(header, ",") {
		one = strings.TrimPrefix(strings.TrimSpace(one), "W/")
		if one == "*" || one == etag {
			return true
		}
	}
	return false
}

// accepts says whether an Accept header takes a media type; without one, all
// are taken.
func accepts(header []string, mediaType string) bool {
	if len(header) == 0 {
		return true
	}
	family, _, _ := strings.Cut(mediaType, "/")
	for one := range strings.SplitSeq(strings.Join(header, ","), ",") {
		kind, params, _ := strings.Cut(one, ";")
		switch strings.ToLower(strings.TrimSpace(kind)) {
		case "*/*", family + "/*", mediaType:
			if q, ok := strings.CutPrefix(strings.ReplaceAll(params, " ", ""), "q="); ok {
				if v, err := strconv.ParseFloat(q, 64); err == nil && v == 0 {
					continue
				}
			}
			return true
		}
	}
	return false
}
