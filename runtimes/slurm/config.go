package slurm

import _ "embed"

//go:embed config.cue
var configCUE string

// ConfigCUE is the CUE source of an instance's config and a version's
// parameters: #Config and #Parameters (runtimes.Backend).
func ConfigCUE() string { return configCUE }
