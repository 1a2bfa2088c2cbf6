package policy

import (
	"bytes"
	"encoding/json"

	"berth/schema"
)

// overlayConfig lays an instance's config over its version's parameters, field
// by field; lists and scalars are replaced. The result is canonical. Both come
// from the reader, which checked them; what is no JSON object counts as empty.
func overlayConfig(under, over json.RawMessage) json.RawMessage {
	merged := merge(object(under), object(over))
	data, err := json.Marshal(merged)
	if err != nil {
		return json.RawMessage("{}")
	}
	canonical, err := schema.CanonicalJSON(data)
	if err != nil {
		return json.RawMessage("{}")
	}
	return canonical
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

func merge(under, over map[string]any) map[string]any {
	for k, v := range over {
		a, aok := under[k].(map[string]any)
		b, bok := v.(map[string]any)
		if aok && bok {
			under[k] = merge(a, b)
		} else {
			under[k] = v
		}
	}
	return under
}
