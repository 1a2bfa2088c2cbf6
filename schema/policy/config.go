package policy

import (
	"bytes"
	"encoding/json"
	"maps"
	"sync"

	"berth/schema"
)

// configs are the parameters of versions, over which the configs of instances are
// laid field by field; lists and scalars are replaced. Both come from the reader,
// which checked them; what is no JSON object counts as empty. They are
// read once: many instances are of one version. Safe for concurrent use.
type configs struct {
	mu sync.Mutex
	of map[*schema.AppVersion]parameters
}

type parameters struct {
	values    map[string]any
	canonical json.RawMessage
}

func newConfigs() *configs { return &configs{of: map[*schema.AppVersion]parameters{}} }

// under is the parameters of v with over laid over them.
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

// canonical is a value that was read as JSON, as canonical JSON: writing it
// sorts the keys, and it cannot fail.
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

// merge is under with over laid over it; neither changes.
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
