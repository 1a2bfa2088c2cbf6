package daemon

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"berth/schema/load"
	"berth/webhooks/forge"
)

// registry is the forges that a daemon knows, with the definition of berth.yaml for
// each. It is safe for concurrent use.
type registry struct {
	kinds []forge.Kind // at least one

	mu       sync.Mutex
	compiled map[string]*load.Settings // by name of the kind
}

func newRegistry(kinds []forge.Kind) *registry {
	return &registry{kinds: kinds, compiled: map[string]*load.Settings{}}
}

// builtIn is the registry of the forges that Berth knows, made once: CUE is slow.
var builtIn = sync.OnceValue(func() *registry { return newRegistry(forges()) })

// names lists the forges as berth.yaml writes them.
func (r *registry) names() (out []string) {
	for _, k := range r.kinds {
		out = append(out, k.Name)
	}
	return out
}

// definition returns config.cue with the section of one kind of forge.
func (r *registry) definition(kind *forge.Kind) (*load.Settings, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := r.compiled[kind.Name]; d != nil {
		return d, nil
	}
	kinds := "_kinds: \"" + strings.Join(r.names(), "\" | \"") + "\"\n"
	d, err := load.NewSettings(configCUE+kinds+kind.CUE, "#Configuration")
	if err != nil {
		return nil, fmt.Errorf("forge %s: %w", kind.Name, err)
	}
	r.compiled[kind.Name] = d
	return d, nil
}

// readFile checks the content of a berth.yaml. It returns the kind of forge that the
// content names, or the first one.
func (r *registry) readFile(path string, data []byte) (*load.SettingsFile, *forge.Kind, error) {
	kind := &r.kinds[0]
	for {
		check, err := r.definition(kind)
		if err != nil {
			return nil, nil, err
		}
		file := check.Read(path, data)
		section, _ := file.Value["forge"].(map[string]any)
		named := slices.IndexFunc(r.kinds, func(k forge.Kind) bool { return k.Name == section["kind"] })
		if named < 0 || kind == &r.kinds[named] {
			return file, kind, nil
		}
		kind = &r.kinds[named]
	}
}

// decodeForge decodes the section forge, which has no findings.
func decodeForge(kind *forge.Kind, value any) (forge.Section, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	section := kind.New()
	return section, json.Unmarshal(data, section)
}

// reference returns the reference of berth.yaml as Markdown: that with the first kind of
// forge, and the section forge of each other one.
func (r *registry) reference(title, intro string) ([]byte, error) {
	var page string
	for i := range r.kinds {
		d, err := r.definition(&r.kinds[i])
		if err != nil {
			return nil, err
		}
		full := string(d.Reference(title, intro))
		if i == 0 {
			page = full
			continue
		}
		_, section, _ := strings.Cut(full, "\n## forge\n")
		section, _, _ = strings.Cut(section, "\n## ")
		page = strings.TrimSuffix(page, "\n") + "\n## forge of kind " + r.kinds[i].Name + "\n" + section + "\n"
	}
	return []byte(page), nil
}
