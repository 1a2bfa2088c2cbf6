package githubtest

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
)

// describedGz is GitHub's description; see data/README.md.
//
//go:embed data/description.json.gz
var describedGz []byte

// loadDescription reads it once for all servers.
var loadDescription = sync.OnceValues(readDescription)

// description checks documents against GitHub's description. Safe for concurrent use.
type description struct {
	operations map[string]operation
	webhooks   map[string]*schema
}

type operation struct {
	Parameters []parameter        `json:"parameters"`
	Request    *schema            `json:"request"`
	Responses  map[string]*schema `json:"responses"`
}

// schema is compiled at its first use: a test needs few of them.
type schema struct {
	raw  json.RawMessage
	once sync.Once
	read *openapi3.Schema
	err  error

	finished sync.Map // of documents, what finish returned
}

func (s *schema) UnmarshalJSON(raw []byte) error {
	s.raw = slices.Clone(raw)
	return nil
}

func (s *schema) get() (*openapi3.Schema, error) {
	s.once.Do(func() {
		s.read = &openapi3.Schema{}
		s.err = json.Unmarshal(s.raw, s.read)
	})
	return s.read, s.err
}

// check validates one document.
func (s *schema) check(v any) error {
	read, err := s.get()
	if err != nil {
		return fmt.Errorf("GitHub's description: %w", err)
	}
	err = read.VisitJSON(v, openapi3.EnableFormatValidation())
	var bad *openapi3.SchemaError
	if errors.As(err, &bad) { // without the schema and the whole document
		return fmt.Errorf("%s: %.400s", strings.Join(bad.JSONPointer(), "."), bad.Reason)
	}
	return err
}

// finish completes one document and validates it. It does so once for the same document:
// the answers to a client that polls differ rarely.
func (s *schema) finish(doc []byte) ([]byte, error) {
	if known, ok := s.finished.Load(string(doc)); ok {
		return known.([]byte), nil
	}
	out, err := s.finishNew(doc)
	if err == nil && len(doc) < 32<<10 { // long lists differ each time, and would fill the memory
		s.finished.Store(string(doc), out)
	}
	return out, err
}

func (s *schema) finishNew(doc []byte) ([]byte, error) {
	read, err := s.get()
	if err != nil {
		return doc, fmt.Errorf("GitHub's description: %w", err)
	}
	var v any
	if err := json.Unmarshal(doc, &v); err != nil {
		return doc, err
	}
	complete(v, read)
	return encode(v), s.check(v)
}

// complete adds the required fields that a document lacks, with the least value that the
// schema allows: the server sets the fields that matter.
func complete(v any, s *openapi3.Schema) {
	for _, part := range slices.Concat(s.AllOf, s.OneOf[:min(1, len(s.OneOf))], s.AnyOf[:min(1, len(s.AnyOf))]) {
		complete(v, part.Value)
	}
	switch v := v.(type) {
	case []any:
		if s.Items == nil {
			return
		}
		for _, item := range v {
			complete(item, s.Items.Value)
		}
	case map[string]any:
		for _, name := range s.Required {
			if _, has := v[name]; !has && s.Properties[name] != nil {
				v[name] = least(s.Properties[name].Value)
			}
		}
		for name, field := range v {
			if p := s.Properties[name]; p != nil {
				complete(field, p.Value)
			}
		}
	}
}

// least is the least value that a schema allows.
func least(s *openapi3.Schema) any {
	formats := map[string]string{"date-time": "2024-01-01T00:00:00Z", "uri": "http://example.com/", "email": "user@example.com"}
	switch {
	case s.Nullable:
		return nil
	case len(s.Enum) > 0:
		return s.Enum[0]
	case len(s.OneOf) > 0:
		return least(s.OneOf[0].Value)
	case len(s.AnyOf) > 0:
		return least(s.AnyOf[0].Value)
	case s.Type.Is("string"):
		return formats[s.Format]
	case s.Type.Is("integer"), s.Type.Is("number"):
		return 0.0
	case s.Type.Is("boolean"):
		return false
	case s.Type.Is("array"):
		return []any{}
	}
	return map[string]any{}
}

type parameter struct {
	In, Name string
	Schema   struct {
		Type, Format string
		Enum         []string
	}
}

func readDescription() (*description, error) {
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
		Webhooks   map[string]*schema
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, fmt.Errorf("GitHub's description: %w", err)
	}
	return &description{operations: d.Operations, webhooks: d.Webhooks}, nil
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
			return fmt.Errorf("%q is not an integer", v)
		}
	}
	if p.Schema.Format == "date-time" {
		if _, err := time.Parse(time.RFC3339, v); err != nil {
			return err
		}
	}
	if len(p.Schema.Enum) > 0 && !slices.Contains(p.Schema.Enum, v) {
		return fmt.Errorf("%q is not one of %q", v, p.Schema.Enum)
	}
	return nil
}

// request checks a request's body. Unknown fields, which GitHub ignores, are violations
// here: they are probably misspelt.
func (d *description) request(op string, body []byte) error {
	s := d.operations[op].Request
	if s == nil {
		if len(body) > 0 {
			return fmt.Errorf("a body, where none is described")
		}
		return nil
	}
	var fields map[string]any
	if err := json.Unmarshal(body, &fields); err != nil {
		return fmt.Errorf("the body is not a JSON object: %w", err)
	}
	known, err := s.get()
	if err != nil {
		return fmt.Errorf("GitHub's description: %w", err)
	}
	for name := range fields {
		if known.Properties[name] == nil {
			return fmt.Errorf("field %q is not described", name)
		}
	}
	return s.check(fields)
}

// response completes and checks an answer.
func (d *description) response(op string, status int, body []byte) ([]byte, error) {
	s, ok := d.operations[op].Responses[strconv.Itoa(status)]
	switch {
	case !ok && status < 400:
		return body, fmt.Errorf("status %d is not described", status)
	case s == nil:
		return body, nil // GitHub describes few of its errors
	}
	return s.finish(body)
}

// webhook completes and checks a delivery's body.
func (d *description) webhook(event, action string, body []byte) ([]byte, error) {
	id := event
	if action != "" {
		id += "-" + action
	}
	s := d.webhooks[strings.ReplaceAll(id, "_", "-")]
	if s == nil {
		return body, fmt.Errorf("webhook %s is not described", id)
	}
	return s.finish(body)
}
