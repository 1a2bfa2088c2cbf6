package estate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"berth/schema"
	"berth/schema/estate"
)

// hostile is one case of the corpus in testdata/hostile: the changes of a user to
// the estate in its directory base, and the expected findings. A case is a file of an archive, a
// class of cases is an archive, and a case has these lines:
//
//	# why, or which CVE
//	edit PATH: OLD => NEW     OLD is there and becomes NEW
//	file PATH: CONTENT        or CONTENT in the following lines that start with "|"
//	mode PATH: OCTAL          the mode of a file that is there
//	remove PATH
//	move PATH: TO
//	harmless                  it looks bad and causes no error
//	> FINDING                 as render prints it
//
// Everything after a verb may hold Go's escapes (\n, \u202e, \xff, \\) and
// «N*TEXT», which is TEXT so many times, with § for the number of each.
// A path may start with one of the names in near.
type hostile struct {
	class, name string
	files       map[string]string
	modes       map[string]uint32
	touched     []string // files that differ from the base
	harmless    bool
	want        []string
	ids         []string // of replayed vulnerabilities
}

// near are short names of the directories and files of the cases.
var near = strings.NewReplacer(
	"$train", "tenants/physics/projects/lattice/instances/train.yaml",
	"$lattice", "tenants/physics/projects/lattice",
	"$collider", "tenants/physics/projects/collider",
	"$genomes", "tenants/biology/projects/genomes",
	"$proteins", "tenants/biology/projects/proteins",
	"$physics", "tenants/physics",
	"$biology", "tenants/biology",
)

var (
	times  = regexp.MustCompile(`(?s)«([0-9]+)\*([^»]*)»`)
	known  = regexp.MustCompile(`\b(CVE-[0-9]{4}-[0-9]+|GHSA(?:-[0-9a-z]{4}){3})\b`)
	script = regexp.MustCompile(`^(edit|file|mode|remove|move|harmless)(?: (.*))?$`)
)

func unescape(t require.TestingT, s string) string {
	var b strings.Builder
	for s != "" {
		c, multibyte, rest, err := strconv.UnquoteChar(s, 0)
		require.NoError(t, err, s)
		if s = rest; c < utf8.RuneSelf || !multibyte {
			b.WriteByte(byte(c))
		} else {
			b.WriteRune(c)
		}
	}
	return times.ReplaceAllStringFunc(b.String(), func(m string) string {
		parts := times.FindStringSubmatch(m)
		n, err := strconv.Atoi(parts[1])
		require.NoError(t, err)
		var all strings.Builder
		for i := range n {
			all.WriteString(strings.ReplaceAll(parts[2], "§", strconv.Itoa(i)))
		}
		return all.String()
	})
}

// escape makes a finding readable and harmless to a reader of the corpus.
func escape(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		c, n := utf8.DecodeRuneInString(s)
		run := len(s) - len(strings.TrimLeft(s, s[:n]))
		switch {
		case c == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case run > 50:
			fmt.Fprintf(&b, "«%d*%c»", run/n, c)
			n = run
		case !unicode.IsPrint(c):
			b.WriteString(strings.Trim(strconv.QuoteRune(c), "'"))
		default:
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

func parseHostile(t require.TestingT, class, name, text string, base map[string]string) hostile {
	h := hostile{class: class, name: name, files: maps.Clone(base), modes: map[string]uint32{}, ids: known.FindAllString(text, -1)}
	open := "" // current file of the lines with "|"
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if block, ok := strings.CutPrefix(line, "|"); ok {
			require.NotEmpty(t, open, "%s/%s: %s", class, name, line)
			h.files[open] += unescape(t, strings.TrimPrefix(block, " ")) + "\n"
			continue
		}
		if finding, ok := strings.CutPrefix(line, "> "); ok {
			h.want = append(h.want, finding)
			continue
		}
		if line == "" || line[0] == '#' {
			continue
		}
		m := script.FindStringSubmatch(line)
		require.NotNil(t, m, "%s/%s: %s", class, name, line)
		if m[1] == "harmless" {
			h.harmless = true
			continue
		}
		path, arg, _ := strings.Cut(m[2], ": ")
		path = unescape(t, near.Replace(strings.TrimSuffix(path, ":")))
		h.touched = append(h.touched, path)
		switch m[1] {
		case "file":
			if h.files[path] = unescape(t, arg); arg == "" {
				open = path
			}
		case "edit":
			before, after, ok := strings.Cut(arg, " => ")
			before = unescape(t, before)
			require.True(t, ok && strings.Contains(h.files[path], before), "%s/%s: %s", class, name, line)
			h.files[path] = strings.Replace(h.files[path], before, unescape(t, after), 1)
		case "mode":
			mode, err := strconv.ParseUint(arg, 8, 32)
			require.NoError(t, err)
			require.Contains(t, h.files, path)
			h.modes[path] = uint32(mode)
		case "remove", "move":
			require.Contains(t, h.files, path, "%s/%s: %s", class, name, line)
			if m[1] == "move" {
				to := unescape(t, near.Replace(arg))
				h.files[to] = h.files[path]
				h.touched = append(h.touched, to)
			}
			delete(h.files, path)
		}
	}
	return h
}

// hostileBase is the estate that the cases change.
func hostileBase(t testing.TB) map[string]string {
	archive, err := txtar.ParseFile("testdata/hostile/base/estate.txtar")
	require.NoError(t, err)
	files := map[string]string{}
	for _, f := range archive.Files {
		files[f.Name] = string(f.Data)
	}
	return files
}

// corpus is all of testdata/hostile, by class and in order.
func corpus(t testing.TB) []hostile {
	t.Helper()
	archives, err := filepath.Glob("testdata/hostile/*.txtar")
	require.NoError(t, err)
	base := hostileBase(t)
	var all []hostile
	for _, name := range archives {
		archive, err := txtar.ParseFile(name)
		require.NoError(t, err)
		for _, f := range archive.Files {
			all = append(all, parseHostile(t, strings.TrimSuffix(filepath.Base(name), ".txtar"), f.Name, string(f.Data), base))
		}
	}
	return all
}

// moded is a snapshot in which some files have another mode.
type moded struct {
	schema.Snapshot
	modes map[string]uint32
}

func (m moded) Parts(ctx context.Context) ([]schema.Part, error) {
	parts, err := m.Snapshot.Parts(ctx)
	parts = slices.Clone(parts)
	for i := range parts {
		if len(m.modes) > 0 {
			parts[i].Hash += fmt.Sprint(m.modes)
		}
	}
	return parts, err
}

func (m moded) Files(ctx context.Context, p schema.Part) ([]schema.File, error) {
	files, err := m.Snapshot.Files(ctx, p)
	files = slices.Clone(files)
	for i, f := range files {
		if mode, ok := m.modes[f.Path]; ok {
			files[i].Mode = mode
		}
	}
	return files, err
}

// findings returns the output of render in readable form. Of more than four consecutive
// findings of a file with one code, it keeps the first two and the last.
func findings(r *estate.Result) (lines []string) {
	safe := *r
	safe.Diagnostics = slices.Clone(r.Diagnostics)
	for i := range safe.Diagnostics {
		safe.Diagnostics[i].File = escape(safe.Diagnostics[i].File)
	}
	safe.Needs = map[string][]string{}
	for file, needs := range r.Needs {
		safe.Needs[escape(file)] = needs
	}
	for line := range strings.Lines(render(&safe)) {
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
	alike := func(line string) string {
		return line[:strings.IndexByte(line, ':')+1] + line[strings.LastIndexByte(line, '[')+1:]
	}
	for i := 0; i < len(lines); i++ {
		n := 1
		for i+n < len(lines) && !strings.Contains(lines[i], " needs ") && alike(lines[i+n]) == alike(lines[i]) {
			n++
		}
		if n > 4 {
			lines = slices.Replace(lines, i+2, i+n-1, fmt.Sprintf("… and %d more", n-3))
			i += 3
		}
	}
	return lines
}

func (h hostile) snapshot() schema.Snapshot { return moded{estate.Files(h.files), h.modes} }

// Each case has exactly the expected findings at their positions, and a refused
// document is not in Desired.
func TestHostileCorpus(t *testing.T) {
	loader := newLoader(t)
	found := map[string]string{}
	for _, h := range corpus(t) {
		t.Run(h.class+"/"+h.name, func(t *testing.T) {
			r, err := loader.Load(context.Background(), h.snapshot())
			require.NoError(t, err)
			got := findings(r)
			found[h.class+"/"+h.name] = strings.Join(got, "\n")
			if !*update {
				require.Equal(t, h.want, got)
			}
			require.NotEqual(t, h.harmless, schema.HasErrors(r.Diagnostics), "%v", got)
			if h.class == "secrets" {
				for _, d := range r.Diagnostics {
					require.NotRegexp(t, `hunter2|0123456789|AKIA|eyJ|MC4C|lQVYB|b3Bl`, d.Message+d.Path)
				}
			}
			desired, err := json.Marshal(r.Desired)
			require.NoError(t, err)
			for _, d := range r.Diagnostics {
				if d.Severity == schema.SeverityError {
					file, err := json.Marshal(d.File)
					require.NoError(t, err)
					require.NotContains(t, string(desired), `"File":`+string(file))
				}
				if content, ok := h.files[d.File]; ok {
					lines := strings.Split(content, "\n")
					require.True(t, 1 <= d.Line && d.Line <= len(lines), d)
					require.True(t, 1 <= d.Column && d.Column <= utf8.RuneCountInString(lines[d.Line-1])+1, d)
				}
				require.Less(t, len(d.Message), 2048)
				require.False(t, strings.ContainsFunc(d.Message+d.Path, func(c rune) bool { return unicode.In(c, unicode.Cc, unicode.Cf) }),
					"%q", d.Message)
			}
		})
	}
	if *update {
		rewriteHostile(t, found)
	}
}

// rewriteHostile writes the findings into the archives.
func rewriteHostile(t *testing.T, found map[string]string) {
	archives, err := filepath.Glob("testdata/hostile/*.txtar")
	require.NoError(t, err)
	for _, name := range archives {
		archive, err := txtar.ParseFile(name)
		require.NoError(t, err)
		for i, f := range archive.Files {
			var kept strings.Builder
			for line := range strings.Lines(string(f.Data)) {
				if !strings.HasPrefix(line, "> ") {
					kept.WriteString(line)
				}
			}
			for line := range strings.Lines(found[strings.TrimSuffix(filepath.Base(name), ".txtar")+"/"+f.Name]) {
				kept.WriteString("> " + strings.TrimSuffix(line, "\n") + "\n")
			}
			archive.Files[i].Data = []byte(kept.String())
		}
		require.NoError(t, os.WriteFile(name, txtar.Format(archive), 0o644))
	}
}

// The corpus has the promised classes and size, no duplicate cases, and the names
// of past vulnerabilities.
func TestHostileCorpusIsComplete(t *testing.T) {
	refused, ids, trees := map[string]int{}, map[string]bool{}, map[string]string{}
	total := 0
	for _, h := range corpus(t) {
		require.NotEmpty(t, h.touched, h.name)
		tree := fmt.Sprint(h.files, h.modes)
		require.NotContains(t, trees, tree, "%s is the same as %s", h.name, trees[tree])
		trees[tree] = h.name
		for _, id := range h.ids {
			ids[id] = true
		}
		if !h.harmless {
			refused[h.class]++
			total++
		}
	}
	t.Log(total, "refused cases:", refused, len(ids), "vulnerabilities")
	require.Equal(t, []string{"bidi", "catalog", "cue", "names", "paths", "policy", "refs", "roles", "secrets", "sizes", "slurm", "trees",
		"yaml"}, sorted(refused))
	require.GreaterOrEqual(t, total, 300)
	require.GreaterOrEqual(t, len(ids), 25)
}
