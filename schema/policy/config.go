package policy

import (
	"bytes"
	"encoding/json"

	"berth/schema"
)

// configs holds the parameters of the platform's versions. The config of an instance is merged over
// them field by field; lists and scalars are replaced. The reader checked both;
// anything but a JSON object counts as empty.
type configs map[*schema.AppVersion]parameters

type parameters struct {
	values    map[string]any
	canonical json.RawMessage
}

func newConfigs(all map[string]map[string]*schema.AppVersion) configs {
	c := configs{}
	for _, versions := range all {
		for _, v := range versions {
			c[v] = parametersOf(v)
		}
	}
	return c
}

func parametersOf(v *schema.AppVersion) parameters {
	values := object(v.Spec.Manifest.Parameters)
	return parameters{values, canonical(values)}
}

// under returns the parameters of v with over merged over them. A version of a tenant's own app is
// not in c.
func (c configs) under(v *schema.AppVersion, over json.RawMessage) json.RawMessage {
	of, ok := c[v]
	if !ok {
		of = parametersOf(v)
	}
	if own := object(over); len(own) > 0 {
		return canonical(schema.MergeConfig(of.values, own))
	}
	return of.canonical
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
