package plan

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"
)

// canonical returns v's canonical JSON: sorted keys, no white space and minimal escapes.
// It drops null values and empty lists and objects from objects, so that a round trip
// through a status file changes nothing. It returns nil if it drops all of v.
func canonical(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		// The types here are plain. Only an invalid RawMessage fails, and the reader
		// lets none pass.
		panic(fmt.Sprintf("plan: encode %T: %v", v, err))
	}
	c := canonicaliser{src: raw}
	if out, ok := c.value(make([]byte, 0, len(raw))); ok {
		return out
	}
	return nil
}

// field is one field of an object. object returns canonical JSON if the fields are
// canonical and sorted by name. It drops fields without a value.
type field struct {
	name  string
	value []byte
}

func object(fields ...field) []byte {
	size := 2
	for _, f := range fields {
		size += len(f.name) + len(f.value) + 4
	}
	out := append(make([]byte, 0, size), '{')
	for _, f := range fields {
		if f.value == nil {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(append(out, '"'), f.name...), `":`...), f.value...)
	}
	return append(out, '}')
}

// canonicaliser reads the output of json.Marshal: valid JSON without white space. It
// makes one pass, because each reconciliation digests the plan.
type canonicaliser struct {
	src     []byte
	scratch []byte  // buffer for sorting an object's fields
	entries []entry // fields of the open objects, the innermost last
}

// entry is a field of an object: its name and its position in the output, with the
// preceding comma. A dropped field has an empty position.
type entry struct {
	name     []byte
	from, to int
}

// value appends the next value to dst and reports whether it is kept.
func (c *canonicaliser) value(dst []byte) (out []byte, ok bool) {
	switch c.src[0] {
	case '{':
		return c.object(dst)
	case '[':
		return c.list(dst)
	case '"':
		quoted, _ := c.text()
		return append(dst, quoted...), true
	}
	n := bytes.IndexAny(c.src, ",]}")
	if n < 0 {
		n = len(c.src)
	}
	literal := c.src[:n]
	c.src = c.src[n:]
	if string(literal) == "null" {
		return dst, false
	}
	return append(dst, literal...), true
}

func (c *canonicaliser) list(dst []byte) (out []byte, ok bool) {
	start := len(dst)
	dst = append(dst, '[')
	for c.src[0] != ']' {
		c.src = c.src[1:] // [ or ,
		if c.src[0] == ']' {
			break
		}
		if len(dst) > start+1 {
			dst = append(dst, ',')
		}
		if dst, ok = c.value(dst); !ok {
			dst = append(dst, "null"...) // list elements keep their index
		}
	}
	c.src = c.src[1:]
	if len(dst) == start+1 {
		return dst[:start], false
	}
	return append(dst, ']'), true
}

func (c *canonicaliser) object(dst []byte) (out []byte, ok bool) {
	start, outer := len(dst), len(c.entries)
	for c.src[0] != '}' {
		c.src = c.src[1:] // { or ,
		if c.src[0] == '}' {
			break
		}
		e := entry{from: len(dst)}
		var quoted []byte
		quoted, e.name = c.text()
		c.src = c.src[1:] // :
		dst = append(append(append(dst, ','), quoted...), ':')
		if dst, ok = c.value(dst); !ok {
			dst = dst[:e.from]
		}
		e.to = len(dst)
		c.entries = append(c.entries, e)
	}
	c.src = c.src[1:]
	entries := c.entries[outer:]
	c.entries = c.entries[:outer]
	if len(dst) == start {
		return dst, false
	}
	byName := func(a, b entry) int { return bytes.Compare(a.name, b.name) }
	if slices.IsSortedFunc(entries, func(a, b entry) int { return cmp.Or(byName(a, b), -1) }) { // unique names, as in a map
		dst[start] = '{'
		return append(dst, '}'), true
	}
	slices.SortStableFunc(entries, byName)
	s := slices.Grow(c.scratch[:0], len(dst)-start)
	for i, e := range entries {
		if e.from == e.to || i+1 < len(entries) && bytes.Equal(e.name, entries[i+1].name) {
			continue // the last of two equal names counts
		}
		s = append(s, dst[e.from:e.to]...)
	}
	c.scratch = s
	if len(s) == 0 {
		return dst[:start], false
	}
	s[0] = '{'
	return append(append(dst[:start], s...), '}'), true
}

// text returns the next string, quoted and decoded.
func (c *canonicaliser) text() (quoted, plain []byte) {
	n, escapes := 1, false
	for ; c.src[n] != '"'; n++ {
		if c.src[n] == '\\' {
			n, escapes = n+1, true
		}
	}
	quoted, c.src = c.src[:n+1], c.src[n+1:]
	if !escapes && utf8.Valid(quoted) {
		return quoted, quoted[1:n]
	}
	var s string
	if err := json.Unmarshal(quoted, &s); err != nil {
		panic(fmt.Sprintf("plan: decode %q: %v", quoted, err)) // json.Marshal has just encoded it
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic(fmt.Sprintf("plan: encode %q: %v", s, err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), []byte(s)
}
