package schema

import (
	"encoding/json"
	"maps"
)

// ConfigProblem is a problem of an instance's config, or of a version's parameters, that
// a runtime finds.
type ConfigProblem struct {
	Path    string // below config, such as partitions[0].name; empty: all of it
	Message string
}

// ConfigName is a name in a config that some node has to have: one that no node has, such as a
// mistyped one, selects nothing.
type ConfigName struct {
	Path string // as that of a ConfigProblem
	Sort string // NodeName or GPUType
	Name string
}

// The sorts of names of nodes that a config may have.
const (
	NodeName = "name"
	GPUType  = "GPU type"
)

// ConfigCheck returns the problems of a config that the definition of its runtime cannot
// express, and its names of nodes. config is complete: that of an instance merged over the
// parameters of version v, or these parameters.
type ConfigCheck func(v *AppVersion, config json.RawMessage) ([]ConfigProblem, []ConfigName)

// MergeConfig returns the parameters of a version with the config of an instance merged
// over them field by field; lists and scalars are replaced. It changes neither argument.
func MergeConfig(under, over map[string]any) map[string]any {
	out := maps.Clone(under)
	for k, v := range over {
		a, aok := under[k].(map[string]any)
		b, bok := v.(map[string]any)
		if aok && bok {
			out[k] = MergeConfig(a, b)
		} else {
			out[k] = v
		}
	}
	return out
}
