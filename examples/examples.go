// Package examples holds complete estates as data, for the demo and the tests.
// It must not know their meaning.
package examples

import (
	"embed"
	"io/fs"
)

//go:embed lab
var lab embed.FS

// Lab is the estate examples/lab.
func Lab() fs.FS {
	sub, err := fs.Sub(lab, "lab")
	if err != nil {
		panic(err) // it is compiled in
	}
	return sub
}
