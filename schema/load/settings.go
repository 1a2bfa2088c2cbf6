package load

import (
	"fmt"
	"sync"

	"cuelang.org/go/cue/cuecontext"

	"berth/schema"
)

// Settings checks a program's own settings file with the rules and messages for an
// estate's documents. It is safe for concurrent use.
type Settings struct {
	mu    sync.Mutex // the CUE context is for one goroutine
	judge *judge
	name  string
}

// NewSettings compiles the definition of that name, such as "#Configuration", from
// CUE source without imports. #Says in it explains its patterns.
func NewSettings(source, name string) (*Settings, error) {
	j := &judge{ctx: cuecontext.New(), defs: map[string]definition{}}
	v, simple, err := compile(j.ctx, map[string][]byte{"settings.cue": []byte(source)})
	if err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	said := map[string]string{}
	if err := says(v, said); err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	if err := j.define(name, v, name, said, simple); err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	return &Settings{judge: j, name: name}, nil
}

// SettingsFile is the parsed settings file.
type SettingsFile struct {
	Value    map[string]any // nil if the file is not a YAML mapping
	Findings []schema.Diagnostic
	tree     *tree
}

// Read checks the content of a file and returns all findings at once.
func (s *Settings) Read(file string, data []byte) *SettingsFile {
	t, findings := readTree(file, data, false)
	if t == nil {
		return &SettingsFile{Findings: findings}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, problems := s.judge.judge(s.name, t.value)
	for _, p := range problems {
		findings = append(findings, diagnose(t, file, p))
	}
	schema.SortDiagnostics(findings)
	return &SettingsFile{Value: t.value, Findings: findings, tree: t}
}

// Place returns the position of a field, or of its nearest ancestor if it is missing.
// The path has the form of schema.Diagnostic.Path.
func (f *SettingsFile) Place(path string) (line, column int) {
	if f.tree == nil {
		return 1, 1
	}
	at := f.tree.of(path)
	return at.line, at.column
}
