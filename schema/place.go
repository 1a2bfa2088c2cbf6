package schema

import (
	"fmt"
	"slices"
	"strings"
)

// MaxName is the length in bytes of the longest valid name.
const MaxName = 40

// ValidName reports whether s is a valid name in an estate: lower-case letters,
// digits and inner dashes, at most MaxName. CUE states the same rule as #Name.
func ValidName(s string) bool {
	if s == "" || len(s) > MaxName || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	return !strings.ContainsFunc(s, func(c rune) bool { return c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') })
}

// ValidLogin reports whether s is a login at the forge: letters, digits and inner dashes, at most 39
// characters, and [bot] after that of an App. CUE states the same rule as _login.
func ValidLogin(s string) bool {
	s = strings.ToLower(strings.TrimSuffix(s, "[bot]"))
	return ValidName(s) && len(s) < MaxName
}

// maxNodeName is the length in bytes of the longest name of a node.
const maxNodeName = 64

// noNodeNames are words that a cluster reads, in any case, as all nodes, as settings of each, or as none.
var noNodeNames = []string{"all", "default", "none"}

// ValidNodeName reports whether s is a name as clusters have it, such as that of a node: letters, digits
// and inner -, _ and ., at most maxNodeName, and none of noNodeNames. CUE states the same rule as #NodeName.
func ValidNodeName(s string) bool {
	if s == "" || len(s) > maxNodeName || strings.ContainsAny(s[:1]+s[len(s)-1:], "-_.") ||
		slices.Contains(noNodeNames, strings.ToLower(s)) {
		return false
	}
	return !strings.ContainsFunc(s, func(c rune) bool {
		return c != '-' && c != '_' && c != '.' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
	})
}

// PathPattern is a pattern of paths. The segments {tenant}, {project}, {parent} and
// {name} are the parts of a key; {node} is {name} for nodes. If a pattern has no {name}, the
// name is the file name without .yaml: platform/pause.yaml has the name pause.
type PathPattern string

func places(patterns ...PathPattern) []PathPattern { return patterns }

// KeyAt is the key of the document that belongs at a path of an estate.
func KeyAt(path string) (Key, bool) {
	key, ok, err := Locate(path)
	return key, ok && err == nil
}

// Locate is KeyAt for paths with invalid names too: ok says that a kind has its
// place there, and err is an InvalidNameError about the first such name.
func Locate(path string) (key Key, ok bool, err error) {
	return match(path, func(k *KindInfo) []PathPattern { return k.Places })
}

// StatusKeyAt is the key of the resource whose status belongs at a path of
// berth/status.
func StatusKeyAt(path string) (Key, bool) {
	key, ok, err := match(path, func(k *KindInfo) []PathPattern { return k.Status })
	return key, ok && err == nil
}

func match(path string, of func(*KindInfo) []PathPattern) (Key, bool, error) {
	for i := range kinds {
		for _, p := range of(&kinds[i]) {
			if key, ok, err := p.match(path); ok {
				key.Kind = kinds[i].Kind
				return key, true, err
			}
		}
	}
	return Key{}, false, nil
}

// match reads the parts of a key from a path.
func (p PathPattern) match(path string) (key Key, ok bool, err error) {
	pattern := string(p)
	key.Name = strings.TrimSuffix(path[strings.LastIndexByte(path, '/')+1:], ".yaml")
	for more := true; more; {
		var want, got string
		var also bool
		want, pattern, more = strings.Cut(pattern, "/")
		if got, path, also = strings.Cut(path, "/"); also != more {
			return Key{}, false, nil
		}
		part, suffix, variable := strings.Cut(want, "}")
		if !variable {
			if got != want {
				return Key{}, false, nil
			}
			continue
		}
		if got, ok = strings.CutSuffix(got, suffix); !ok {
			return Key{}, false, nil
		}
		valid, want := ValidName, fmt.Sprintf("lower-case letters, digits and inner dashes, at most %d characters", MaxName)
		if part == "{node" {
			valid, want = ValidNodeName, fmt.Sprintf("letters, digits and inner -, _ and ., at most %d characters, and not %s", maxNodeName,
				strings.Join(noNodeNames, ", "))
		}
		if err == nil && !valid(got) {
			err = &InvalidNameError{got, want}
		}
		*key.part(part[1:]) = got
	}
	return key, true, err
}

// InvalidNameError reports a part of a path that is not a valid name there, and describes valid names.
type InvalidNameError struct{ Name, Want string }

func (e *InvalidNameError) Error() string { return fmt.Sprintf("%q is not a valid name", e.Name) }

// part is the field of k that a place calls by name.
func (k *Key) part(name string) *string {
	switch name {
	case "tenant":
		return &k.Tenant
	case "project":
		return &k.Project
	case "parent":
		return &k.Parent
	}
	return &k.Name
}

// fits reports whether k has just the parts that p has.
func (p PathPattern) fits(k Key) bool {
	return p.has("{tenant}") == (k.Tenant != "") && p.has("{project}") == (k.Project != "") && p.has("{parent}") == (k.Parent != "")
}

func (p PathPattern) has(part string) bool { return strings.Contains(string(p), part) }

func (p PathPattern) path(k Key) string {
	var b strings.Builder
	b.Grow(len(p) + len(k.Tenant) + len(k.Project) + len(k.Parent) + len(k.Name))
	rest := string(p)
	for {
		text, after, ok := strings.Cut(rest, "{")
		b.WriteString(text)
		if !ok {
			return b.String()
		}
		var part string
		part, rest, _ = strings.Cut(after, "}")
		b.WriteString(*k.part(part))
	}
}

// String is the place as messages show it: platform/nodes/<name>.yaml.
func (p PathPattern) String() string {
	return strings.NewReplacer("{node}", "<name>", "{", "<", "}", ">").Replace(string(p))
}

// place is the place of k's document in an estate.
func (k Key) place() (PathPattern, bool) {
	all := k.Kind.Info().Places
	if i := slices.IndexFunc(all, func(p PathPattern) bool { return p.fits(k) }); i >= 0 {
		return all[i], true
	}
	return "", false
}

// Path is the path of k's document in an estate.
func (k Key) Path() (string, error) {
	p, ok := k.place()
	if !ok {
		return "", fmt.Errorf("%q has no place in an estate", k.String())
	}
	return p.path(k), nil
}

// StatusPath is the path of k's status on berth/status.
func (k Key) StatusPath() (string, error) {
	all := k.Kind.Info().Status
	if i := slices.IndexFunc(all, func(p PathPattern) bool { return p.fits(k) }); i >= 0 {
		path := all[i].path(k)
		if back, ok := StatusKeyAt(path); ok && back == k { // every part is a valid name
			return path, nil
		}
	}
	return "", fmt.Errorf("%q has no place on berth/status", k.String())
}
