package schema

import (
	"cmp"
	"iter"
	"maps"
	"slices"
)

// Sorted yields the names and values of a map in the order of the names.
func Sorted[V any](m map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		names := slices.AppendSeq(make([]string, 0, len(m)), maps.Keys(m))
		slices.Sort(names)
		for _, name := range names {
			if !yield(name, m[name]) {
				return
			}
		}
	}
}

// Changed yields the values of is that was does not have in this version, sorted by name. The first value of
// each pair is the one of that name in was, or a zero one.
func Changed[V any](was, is map[string]*V) iter.Seq2[*V, *V] {
	var names []string
	for name, v := range is {
		if v != was[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return func(yield func(was, is *V) bool) {
		for _, name := range names {
			if !yield(cmp.Or(was[name], new(V)), is[name]) {
				return
			}
		}
	}
}

// changedRuntimes yields the shared runtimes, the platform's first, as Changed does.
func changedRuntimes(before, after *Desired) iter.Seq2[*SharedRuntimeEstate, *SharedRuntimeEstate] {
	return func(yield func(was, is *SharedRuntimeEstate) bool) {
		for was, is := range Changed(before.Platform.SharedRuntimes, after.Platform.SharedRuntimes) {
			if !yield(was, is) {
				return
			}
		}
		for old, t := range Changed(before.Tenants, after.Tenants) {
			for was, is := range Changed(old.SharedRuntimes, t.SharedRuntimes) {
				if !yield(was, is) {
					return
				}
			}
		}
	}
}

// changedProjects yields the projects of all tenants as Changed does.
func changedProjects(before, after *Desired) iter.Seq2[*ProjectEstate, *ProjectEstate] {
	return func(yield func(was, is *ProjectEstate) bool) {
		for old, t := range Changed(before.Tenants, after.Tenants) {
			for was, is := range Changed(old.Projects, t.Projects) {
				if !yield(was, is) {
					return
				}
			}
		}
	}
}

// changedInstances yields the instances of all projects as Changed does.
func changedInstances(before, after *Desired) iter.Seq2[*Instance, *Instance] {
	return func(yield func(was, is *Instance) bool) {
		for old, p := range changedProjects(before, after) {
			for was, is := range Changed(old.Instances, p.Instances) {
				if !yield(was, is) {
					return
				}
			}
		}
	}
}
