package githubtest

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"sync"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/encoding/jsonschema"
)

// describedGz is GitHub's description; see data/README.md.
//
//go:embed data/description.json.gz
var describedGz []byte

// description answers whether a document is what GitHub describes. Schemas are
// read when first needed. Safe for concurrent use.
type description struct {
	operations map[string]operation
	webhooks   map[string]json.RawMessage

	mu       sync.Mutex // CUE's context is for one at a time
	cue      *cue.Context
	compiled map[string]cue.Value
	seen     map[[sha256.Size]byte]bool // schema and document: already found right
}

type operation struct {
	Parameters []parameter                `json:"parameters"`
	Request    json.RawMessage            `json:"request"`
	Responses  map[string]json.RawMessage `json:"responses"`
}

type parameter struct {
	In, Name string
	Schema   struct {
		Type string
		Enum []string
	}
}

func loadDescription() (*description, error) {
	z, err := gzip.NewReader(bytes.NewReader(describedGz))
	if err != nil {
		return nil, fmt.Errorf("GitHub's description: %w", err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("GitHub's description: %w", err)
	}
	var d struct {
		Operations map[string]operation
		Webhooks   map[string]json.RawMessage
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, fmt.Errorf("GitHub's description: %w", err)
	}
	return &description{
		operations: d.Operations, webhooks: d.Webhooks,
		cue: cuecontext.New(), compiled: map[string]cue.Value{}, seen: map[[sha256.Size]byte]bool{},
	}, nil
}

// query checks a request's parameters: known, and of the right type.
func (d *description) query(op string, q url.Values) error {
	known := d.operations[op].Parameters
	for name, values := range q {
		i := slices.IndexFunc(known, func(p parameter) bool { return p.In == "query" && p.Name == name })
		if i < 0 {
			return fmt.Errorf("query parameter %q is not described", name)
		}
		for _, v := range values {
			if err := known[i].fits(v); err != nil {
				return fmt.Errorf("query parameter %s: %w", name, err)
			}
		}
	}
	if n, err := strconv.Atoi(q.Get("per_page")); err == nil && (n < 1 || n > maxPerPage) {
		return fmt.Errorf("query parameter per_page is %d, which GitHub silently makes %d", n, maxPerPage)
	}
	return nil
}

func (p parameter) fits(v string) error {
	if p.Schema.Type == "integer" {
		if _, err := strconv.ParseInt(v, 10, 64); err != nil {
			return fmt.Errorf("%q is no integer", v)
		}
	}
	if len(p.Schema.Enum) > 0 && !slices.Contains(p.Schema.Enum, v) {
		return fmt.Errorf("%q is not one of %q", v, p.Schema.Enum)
	}
	return nil
}

// request checks a request's body. GitHub ignores fields it does not know; here
// they are wrong, being misspelt ones.
func (d *description) request(op string, body []byte) error {
	schema := d.operations[op].Request
	if empty(schema) {
		if len(body) > 0 {
			return fmt.Errorf("a body, where none is described")
		}
		return nil
	}
	var have, known struct {
		fields     map[string]json.RawMessage
		Properties map[string]json.RawMessage
	}
	if err := json.Unmarshal(body, &have.fields); err != nil {
		return fmt.Errorf("the body is no JSON object: %w", err)
	}
	if err := json.Unmarshal(schema, &known); err != nil {
		return err
	}
	for name := range have.fields {
		if _, ok := known.Properties[name]; !ok {
			return fmt.Errorf("field %q is not described", name)
		}
	}
	return d.check(op+" request", schema, body)
}

// response checks an answer.
func (d *description) response(op string, status int, body []byte) error {
	schema, ok := d.operations[op].Responses[strconv.Itoa(status)]
	switch {
	case !ok && status < 400:
		return fmt.Errorf("status %d is not described", status)
	case !ok || empty(schema):
		return nil // GitHub describes few of its errors
	}
	return d.check(fmt.Sprintf("%s %d", op, status), schema, body)
}

// webhook checks a delivery's body.
func (d *description) webhook(event, action string, body []byte) error {
	id := event
	if action != "" {
		id += "-" + action
	}
	id = hyphens(id)
	schema, ok := d.webhooks[id]
	if !ok {
		return fmt.Errorf("webhook %s is not described", id)
	}
	return d.check("webhook "+id, schema, body)
}

// check validates one document. Of a list each item is checked by itself: what
// CUE takes grows faster than the document.
func (d *description) check(id string, schema json.RawMessage, doc []byte) error {
	var s struct {
		Type  string
		Items json.RawMessage
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		return err
	}
	if s.Type == "array" {
		var items []json.RawMessage
		if err := json.Unmarshal(doc, &items); err != nil {
			return err
		}
		for i, item := range items {
			if err := d.check(id+" item", s.Items, item); err != nil {
				return fmt.Errorf("[%d]: %w", i, err)
			}
		}
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	sum := sha256.Sum256(append([]byte(id+"\x00"), doc...))
	if d.seen[sum] {
		return nil
	}
	v, ok := d.compiled[id]
	if !ok {
		file, err := jsonschema.Extract(d.cue.CompileBytes(schema), &jsonschema.Config{DefaultVersion: jsonschema.VersionOpenAPI})
		if err != nil {
			return fmt.Errorf("GitHub's description of %s: %w", id, err)
		}
		if v = d.cue.BuildFile(file); v.Err() != nil {
			return fmt.Errorf("GitHub's description of %s: %w", id, v.Err())
		}
		d.compiled[id] = v
	}
	// JSON is CUE.
	if err := v.Unify(d.cue.CompileBytes(doc)).Validate(cue.Concrete(true)); err != nil {
		// The shortest says most: others quote the whole document.
		list := errors.Errors(err)
		shortest := slices.MinFunc(list, func(a, b errors.Error) int { return len(a.Error()) - len(b.Error()) }).Error()
		return fmt.Errorf("%s (%d in all)", shortest[:min(len(shortest), 400)], len(list))
	}
	d.seen[sum] = true
	return nil
}

func empty(schema json.RawMessage) bool { return len(schema) == 0 || string(schema) == "null" }

func hyphens(s string) string {
	return string(bytes.ReplaceAll([]byte(s), []byte("_"), []byte("-")))
}
