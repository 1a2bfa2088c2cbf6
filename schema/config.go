package schema

import (
	"encoding/json"
	"maps"
	"time"
)

// ConfigProblem is a problem of an instance's config, or of a version's parameters, that
// a runtime finds.
type ConfigProblem struct {
	Path    string // below config, such as partitions[0].name; empty: all of it
	Message string
}

// ConfigName is a name in a config of something outside of it. One that nothing has, such as a
// mistyped one, has no effect.
type ConfigName struct {
	Path string // as that of a ConfigProblem
	Sort string // NodeName, GPUType, UserName, ProjectName or ReservedName
	Name string
}

// The sorts of names that a config may have: of nodes, of the unit's users on the hosts, and of projects
// by their ids.
const (
	NodeName     = "name"
	GPUType      = "GPU type"
	UserName     = "user"
	ProjectName  = "project"
	ReservedName = "name that no attached project has" // a project has resources of its own name
)

// ConfigEnd is the end of what a config declares for a time. After it, the field has no effect.
type ConfigEnd struct {
	Path string // as that of a ConfigProblem
	What string // such as: the reservation firmware
	At   time.Time
}

// ConfigFacts has the facts that a runtime finds in a config.
type ConfigFacts struct {
	Problems []ConfigProblem // that the definition of the runtime cannot express
	NoEffect []ConfigProblem // fields that other fields of the config make useless
	Names    []ConfigName
	Ends     []ConfigEnd
}

// ConfigCheck reads a config. It is complete: that of an instance merged over the parameters of
// version v, or these parameters.
type ConfigCheck func(v *AppVersion, config json.RawMessage) ConfigFacts

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
