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
	return canonical(merge(object(under), object(over)))
}

// configs are the configs of instances that say nothing of their own, by their
// versions: most say nothing, and a version's parameters are laid out once.
type configs map[*schema.AppVersion]json.RawMessage

func (c configs) of(v *schema.AppVersion, over json.RawMessage) json.RawMessage {
	if len(over) > 0 {
		return overlayConfig(v.Spec.Manifest.Parameters, over)
	}
	if _, ok := c[v]; !ok {
		c[v] = overlayConfig(v.Spec.Manifest.Parameters, nil)
	}
	return c[v]
}

// canonical is a value that was read as JSON, as canonical JSON: writing it
// sorts the keys, and it cannot fail.
func canonical(v any) json.RawMessage {
	data, _ := json.Marshal(v)
	return data
}

func object(data json.RawMessage) map[string]any {
	m := map[string]any{}
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
