package daemon

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// readConfigs reads the configurations of the estates of one process.
func (r *registry) readConfigs(paths []string) ([]*Config, error) {
	if len(paths) == 0 {
		return nil, errors.New("no configuration: name one with -c")
	}
	var all []*Config
	var wrong []error
	for _, path := range paths {
		c, err := r.readConfig(path)
		wrong = append(wrong, err)
		all = append(all, c)
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	if c := findConflict(paths, all); c != nil {
		return nil, c
	}
	return all, nil
}

// ConflictError is why one process cannot work for two estates.
type ConflictError struct {
	a, b int // indexes of the estates, a before b
	why  string
}

func (c *ConflictError) Error() string { return c.why }

// findConflict returns the first conflict between configurations, or nil.
func findConflict(paths []string, all []*Config) *ConflictError {
	owner := map[string]int{} // from an exclusive value to its estate
	for i, c := range all {
		if c.Listen != "" && i > 0 && c.address() != all[0].address() {
			return &ConflictError{0, i, fmt.Sprintf("%s and %s: one process listens at one address: take listen out of the second, or "+
				"say %s", paths[0], paths[i], all[0].address())}
		}
		if c.TLS != nil && i > 0 && (all[0].TLS == nil || *c.TLS != *all[0].TLS) {
			return &ConflictError{0, i, fmt.Sprintf("%s and %s: one process has one certificate: take tls out of the second, and say it "+
				"in the first", paths[0], paths[i])}
		}
		for _, own := range c.exclusive() {
			if other, ok := owner[own.name]; ok && other != i {
				return &ConflictError{other, i, fmt.Sprintf("%s and %s: both have %s: %s", paths[other], paths[i], own.name, own.advice)}
			}
			owner[own.name] = i
		}
	}
	return nil
}

// exclusive is a value that only one estate of a process may use.
type exclusive struct{ name, advice string }

// exclusive lists the values that only one estate of the process may use. Hosts are
// declared in the estates; there the epoch protects: a host obeys the latest leader.
func (c *Config) exclusive() []exclusive {
	branches := func(url string) string {
		return "berth's branches in " + strings.ToLower(strings.TrimSuffix(strings.TrimSuffix(url, "/"), ".git"))
	}
	out := []exclusive{
		{"the name estate: " + c.Estate, "give each a name of its own"},
		{"the cache " + filepath.Clean(c.Repository.Directory), "give each a repository.directory of its own"},
		{branches(c.Repository.URL), "give each a repository of its own"},
	}
	if s := c.Repository.StatusURL; s != "" {
		out = append(out, exclusive{branches(s), "give each a status_url of its own"})
	}
	if m := c.MemoryRuntime; m != nil {
		out = append(out, exclusive{"the memory_runtime in " + filepath.Clean(m.Directory), "give each a directory of its own"})
	}
	return out
}
