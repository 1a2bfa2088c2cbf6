package policy

import (
	"bytes"
	"encoding/json"

	"berth/schema"
)

// configs holds the parameters of versions. The config of an instance is merged over
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
			values := object(v.Spec.Manifest.Parameters)
			c[v] = parameters{values, canonical(values)}
		}
	}
	return c
}

// under returns the parameters of v with over merged over them.
func (c configs) under(v *schema.AppVersion, over json.RawMessage) json.RawMessage {
	if own := object(over); len(own) > 0 {
		return canonical(schema.MergeConfig(c[v].values, own))
	}
	return c[v].canonical
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
