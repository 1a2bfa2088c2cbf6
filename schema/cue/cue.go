// Package cue holds the definitions of the documents of an estate, as CUE
// source: closed structures with their defaults, bounds and enumerations. They
// are what package schema's Go types say, made checkable.
//
// It is data with an embed directive. It must not know who reads it.
package cue

import "embed"

//go:embed *.cue
var files embed.FS

// Sources are the CUE files by name. All are of one package.
func Sources() (map[string][]byte, error) {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, err
	}
	sources := make(map[string][]byte, len(entries))
	for _, e := range entries {
		data, err := files.ReadFile(e.Name())
		if err != nil {
			return nil, err
		}
		sources[e.Name()] = data
	}
	return sources, nil
}
