package cluster

import _ "embed"

//go:embed config.cue
var configCUE string

//go:embed example.yaml
var configExample string

// CUE returns the definition of a config: the types, bounds and defaults of its fields, with their documentation.
func CUE() string { return configCUE }

// Example returns a config in YAML with each field.
func Example() string { return configExample }
