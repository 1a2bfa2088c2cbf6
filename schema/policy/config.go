package policy

import (
	"bytes"
	"encoding/json"
	"maps"
	"sync"

	"berth/schema"
)

// configs holds the parameters of versions. The config of an instance is merged over
// them field by field; lists and scalars are replaced. The reader checked both;
// anything but a JSON object counts as empty. Each version is parsed once. Safe for
// concurrent use.
type configs struct {
	mu sync.Mutex
	of map[*schema.AppVersion]parameters
}

type parameters struct {
	values    map[string]any
	canonical json.RawMessage
}

func newConfigs() *configs { return &configs{of: map[*schema.AppVersion]parameters{}} }

// under returns the parameters of v with over merged over them.
func (c *configs) under(v *schema.AppVersion, over json.RawMessage) json.RawMessage {
	c.mu.Lock()
	p, ok := c.of[v]
	if !ok {
		p.values = object(v.Spec.Manifest.Parameters)
		p.canonical = canonical(p.values)
		c.of[v] = p
	}
	c.mu.Unlock()
	if own := object(over); len(own) > 0 {
		return canonical(merge(p.values, own))
	}
	return p.canonical
}

// canonical returns a value as canonical JSON. Encoding sorts the keys, and cannot fail
// for a value that was read as JSON.
func canonical(v any) json.RawMessage {
	data, _ := json.Marshal(v)
	return data
}

func object(data json.RawMessage) map[string]any {
	m := map[string]any{}
	if len(data) == 0 {
		return m
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(&m); err != nil || m == nil {
		return map[string]any{}
	}
	return m
}

// merge returns under with over merged over it. It changes neither argument.
func merge(under, over map[string]any) map[string]any {
	out := maps.Clone(under)
	for k, v := range over {
		a, aok := under[k].(map[string]any)
		b, bok := v.(map[string]any)
		if aok && bok {
			out[k] = merge(a, b)
		} else {
			out[k] = v
		}
	}
	return out
}
