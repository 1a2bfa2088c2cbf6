package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// mutant is an effect that is taken out of the code, and the test that must fail then.
type mutant struct {
	// ID begins with the row of examples/requirements.md, as in A4-protected-is-deleted.
	ID string `json:"id"`
	// Effect describes the wrong behaviour of Berth with the mutant in one line.
	Effect string `json:"effect"`
	// In is a function, a method "(*Type).name" or "Type.name", or a variable or constant
	// of a package. The last element of the package's path may precede it: "loop.name".
	In string `json:"in"`
	// Was is Go text that In has exactly once, whatever its white space and comments.
	// Without it, Is replaces the whole body of a function.
	Was string `json:"was,omitempty"`
	// Is replaces Was. It must compile.
	Is string `json:"is"`
	// Test is "dir.TestName" or "dir.TestName/subtest". The row names dir.TestName.
	Test string `json:"test"`
}

// row returns the row of examples/requirements.md that the mutant belongs to.
func (m mutant) row() string {
	row, _, _ := strings.Cut(m.ID, "-")
	return row
}

// target returns the directory of the test and the name of the test with its subtests.
func (m mutant) target() (dir, name string) {
	if i := strings.Index(m.Test, ".Test"); i >= 0 {
		return m.Test[:i], m.Test[i+1:]
	}
	return m.Test, ""
}

// readTable reads examples/mutants.yaml below the root of the module.
func readTable(root string) ([]mutant, error) {
	text, err := os.ReadFile(filepath.Join(root, "examples/mutants.yaml"))
	if err != nil {
		return nil, err
	}
	var table []mutant
	if err := yaml.UnmarshalStrict(text, &table); err != nil {
		return nil, fmt.Errorf("examples/mutants.yaml: %w", err)
	}
	return table, nil
}

// requirement is a row of examples/requirements.md that does not say "Not yet".
type requirement struct {
	id    string
	tests []string
}

// readRequirements returns the rows of examples/requirements.md that do not say "Not yet".
func readRequirements(root string) ([]requirement, error) {
	text, err := os.ReadFile(filepath.Join(root, "examples/requirements.md"))
	if err != nil {
		return nil, err
	}
	var rows []requirement
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		id := strings.TrimSpace(cells[0])
		if len(cells) != 4 || !regexp.MustCompile(`^[A-Z]\d+$`).MatchString(id) ||
			strings.HasPrefix(strings.TrimSpace(cells[2]), "Not yet") {
			continue
		}
		row := requirement{id: id}
		for _, name := range regexp.MustCompile("`([^` ]+\\.Test[^` ]+)`").FindAllStringSubmatch(cells[3], -1) {
			row.tests = append(row.tests, name[1])
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// checkTable returns an error for a wrong table: each row has a mutant, each mutant has
// its own id and all fields, and its row names its test.
func checkTable(table []mutant, rows []requirement) error {
	var faults []error
	seen := map[string]bool{}
	for _, m := range table {
		i := slices.IndexFunc(rows, func(r requirement) bool { return r.id == m.row() })
		_, name := m.target()
		test, _, _ := strings.Cut(m.Test, name)
		top, _, _ := strings.Cut(name, "/")
		switch {
		case m.ID == "" || m.Effect == "" || m.In == "" || m.Is == "" && m.Was == "" || name == "":
			faults = append(faults, fmt.Errorf("%q: id, effect, in, is or test is empty", m.ID))
		case seen[m.ID]:
			faults = append(faults, fmt.Errorf("%s: the id is used twice", m.ID))
		case i < 0:
			faults = append(faults, fmt.Errorf("%s: examples/requirements.md has no row %s, or the row says Not yet", m.ID, m.row()))
		case !slices.Contains(rows[i].tests, test+top):
			faults = append(faults, fmt.Errorf("%s: row %s of examples/requirements.md does not name %s", m.ID, m.row(), test+top))
		}
		seen[m.ID] = true
	}
	for _, r := range rows {
		if !slices.ContainsFunc(table, func(m mutant) bool { return m.row() == r.id }) {
			faults = append(faults, fmt.Errorf("%s: the row has no mutant in examples/mutants.yaml", r.id))
		}
	}
	return errors.Join(faults...)
}
