package load

import (
	"strconv"
	"strings"
)

// The path of a field is its keys and indices from the root, as in
// spec.members[2].login. A key that would read as more than one step, such as
// a label's, is quoted: metadata.labels."example.org/team". So different fields
// have different paths; brackets stand for indices alone, as no key has any.

// child is the path of the field called key in the mapping at path.
func child(path, key string) string {
	if strings.ContainsAny(key, `."`) {
		key = strconv.Quote(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// Item is the path of an item of the list at path.
func Item(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// step is one step of a path: a key, or an index where key is "".
type step struct {
	key   string
	index int
}

// cutStep takes the first step off a path that child and item made.
func cutStep(path string) (first step, rest string) {
	switch {
	case strings.HasPrefix(path, "["):
		digits, rest, _ := strings.Cut(path[1:], "]")
		first.index, _ = strconv.Atoi(digits)
		return first, strings.TrimPrefix(rest, ".")
	case strings.HasPrefix(path, `"`):
		if quoted, err := strconv.QuotedPrefix(path); err == nil {
			first.key, _ = strconv.Unquote(quoted)
			return first, strings.TrimPrefix(path[len(quoted):], ".")
		}
	}
	end := strings.IndexAny(path, ".[")
	if end < 0 {
		end = len(path)
	}
	return step{key: path[:end]}, strings.TrimPrefix(path[end:], ".")
}

// Parent is the path of the mapping or list that path is in.
func Parent(path string) string {
	up, _ := lastStep(path)
	return up
}

// lastStep takes the last step off a path.
func lastStep(path string) (up string, last step) {
	end := 0 // of the part before the step looked at
	for rest := path; rest != ""; {
		begin := len(path) - len(rest)
		if last, rest = cutStep(rest); rest == "" {
			end = begin
		}
	}
	return strings.TrimSuffix(path[:end], "."), last
}

// Items names the items of a list.
func Items(path string) func(int) string { return func(i int) string { return Item(path, i) } }
