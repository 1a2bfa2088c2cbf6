package main

import "berth/runtimes/slurm"

// memoryCUE takes any config: the runtime that keeps its units in memory reads
// none of it.
const memoryCUE = `
#Config: {...}
#Parameters: {...}
`

// backends are the definitions of the runtimes that are built in, by the
// runtime_backend that selects them.
func backends() map[string]string {
	return map[string]string{
		"bare_metal": memoryCUE,
		"slurm":      slurm.ConfigCUE(),
	}
}
