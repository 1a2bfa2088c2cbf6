package estate

import (
	"slices"
	"strings"
)

// sortedKeys lists a map's keys. A load calls it for each document.
func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func hasEntry[V any](m map[string]V, k string) bool { _, ok := m[k]; return ok }

// put returns the inner map at a key, and creates it if missing.
func put[M ~map[string]map[string]V, V any](m M, k string) map[string]V {
	if m[k] == nil {
		m[k] = map[string]V{}
	}
	return m[k]
}

func builder(m map[string]*strings.Builder, k string) *strings.Builder {
	if m[k] == nil {
		m[k] = &strings.Builder{}
	}
	return m[k]
}
