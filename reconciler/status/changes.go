package status

import (
	"bytes"
	"encoding/json"
	"reflect"
)

// changes are the keys of one group of files of the branch that a commit must
// write or remove.
type changes[K comparable] struct{ write, remove map[K]bool }

func newChanges[K comparable]() changes[K] {
	return changes[K]{write: map[K]bool{}, remove: map[K]bool{}}
}

func (c *changes[K]) put(k K) {
	c.write[k] = true
	delete(c.remove, k)
}

func (c *changes[K]) drop(k K) {
	delete(c.write, k)
	c.remove[k] = true
}

// written notes that a commit wrote the file of k as written. A value that
// changed since then stays to be written.
func (c *changes[K]) written(k K, current, written any) {
	if EqualJSON(current, written) {
		delete(c.write, k)
	}
}

// compare sets the changes to the differences between memory and the branch.
func compare[K comparable, S any](c *changes[K], known, branch map[K]*S) {
	for k, s := range known {
		if b := branch[k]; b != nil && EqualJSON(s, b) {
			delete(c.write, k)
		} else {
			c.write[k] = true
		}
	}
	for k := range branch {
		if known[k] == nil {
			c.remove[k] = true
		}
	}
}

// EqualJSON returns true if a and b are encoded alike, as the branch holds them. Two deeply equal values are, and to compare
// costs less than to encode: most reconciliations change nothing.
func EqualJSON(a, b any) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
