package estate

import (
	"maps"
	"slices"
	"strings"
)

// sortedKeys lists a map's keys.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

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
