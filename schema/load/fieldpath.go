package load

import (
	"strconv"
	"strings"
)

// The path of a field is its keys and indices from the root, as in
// spec.members[2].login. A key that would read as several steps, such as a label's, is
// quoted: metadata.labels."example.org/team". Therefore different fields have different
// paths. Only indices have brackets, because no key contains them.

// child returns the path of the field called key in the mapping at path.
func child(path, key string) string {
	if strings.ContainsAny(key, `."`) {
		key = strconv.Quote(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// Item returns the path of an item of the list at path.
func Item(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// step is one step of a path: a key, or an index if key is "".
type step struct {
	key   string
	index int
}

// cutStep removes the first step of a path that child and item made.
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

// Parent returns the path of the mapping or list that contains path.
func Parent(path string) string {
	up, _ := lastStep(path)
	return up
}

// lastStep removes the last step of a path.
func lastStep(path string) (up string, last step) {
	end := 0 // end of the path before the current step
	for rest := path; rest != ""; {
		begin := len(path) - len(rest)
		if last, rest = cutStep(rest); rest == "" {
			end = begin
		}
	}
	return strings.TrimSuffix(path[:end], "."), last
}

// Items returns a function that names the items of a list.
func Items(path string) func(int) string { return func(i int) string { return Item(path, i) } }

// join returns the path of a field below another one.
func join(prefix, path string) string {
	switch {
	case path == "":
		return prefix
	case path[0] == '[':
		return prefix + path
	}
	return prefix + "." + path
}
