package estate_test

import (
	"context"
	"errors"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"berth/schema"
	"berth/schema/estate"
)

const trainFile = "tenants/physics/projects/lattice/instances/train.yaml"

// Cases that an archive cannot contain: invalid bytes, and special files.
func TestInvalidBytesAndFileModes(t *testing.T) {
	text := lab(t)[trainFile]
	for name, tc := range map[string]struct{ content, want string }{
		"one megabyte": {strings.Repeat("# padding\n", 1<<20/10),
			"1:1: error: larger than 64 KiB: split it, a document declares one resource [file.too-large]"},
		"one byte too many": {text + strings.Repeat("#", 64<<10-len(text)+1),
			"1:1: error: larger than 64 KiB: split it, a document declares one resource [file.too-large]"},
		"byte order mark": {"\ufeff" + text, "1:1: error: starts with a byte order mark: save it as UTF-8 without one [file.bom]"},
		"no utf-8": {strings.Replace(text, "Training", "Tr\xe4ining", 1),
			"9:19: error: is not UTF-8: save it as UTF-8 [file.encoding]"},
		"utf-16": {"\xff\xfea\x00", "1:1: error: is not UTF-8: save it as UTF-8 [file.encoding]"},
		"bidi in a comment": {"# a\u202eb\n" + text,
			"1:4: error: holds the character U+202E, which is invisible or changes how text is read: remove it [file.control]"},
		"zero width": {strings.Replace(text, "Training", "Tr\u200baining", 1),
			"9:19: error: holds the character U+200B, which is invisible or changes how text is read: remove it [file.control]"},
		"nul": {text + "\x00",
			"17:1: error: holds the character U+0000, which is invisible or changes how text is read: remove it [file.control]"},
		"lonely return": {strings.Replace(text, "\nspec", "\rspec", 1),
			"5:14: error: holds the character U+000D, which is invisible or changes how text is read: remove it [file.control]"},
		"flow 60,000 deep":   {"a: " + strings.Repeat("[", 60_000), "1:1: error: nested deeper than 32 levels [yaml.depth]"},
		"block 10,000 deep":  {strings.Repeat("- ", 10_001), "1:1: error: nested deeper than 32 levels [yaml.depth]"},
		"as long as allowed": {text + strings.Repeat("#", 64<<10-len(text)), ""},
		"windows lines":      {strings.ReplaceAll(text, "\n", "\r\n"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			files := lab(t)
			files[trainFile] = tc.content
			r, err := newLoader(t).Load(context.Background(), estate.Files(files))
			require.NoError(t, err)
			want := ""
			if tc.want != "" {
				want = trainFile + ":" + tc.want + "\n"
			}
			require.Equal(t, want, render(r))
		})
	}
}

// A directory is listed as Git would store it.
func TestDirListsLinksLikeGit(t *testing.T) {
	dir := t.TempDir()
	for path, content := range lab(t) {
		name := filepath.Join(dir, filepath.FromSlash(path))
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(content), 0o644))
	}
	at := func(path string) string { return filepath.Join(dir, filepath.FromSlash(path)) }
	require.NoError(t, os.Mkdir(at(".git"), 0o755))
	require.NoError(t, os.WriteFile(at(".git/config"), nil, 0o644))
	require.NoError(t, os.WriteFile(at("Makefile"), []byte("all:\n"), 0o644))
	require.NoError(t, os.Symlink("/etc/passwd", at("platform/nodes/link.yaml")))
	require.NoError(t, os.Symlink("/etc", at("tenants/linked")))
	require.NoError(t, os.Chmod(at("platform/nodes/dev-gpu-1.yaml"), 0o755))
	require.NoError(t, os.MkdirAll(at("tenants/physics/sub/.git"), 0o755))

	snap, err := estate.Dir(dir)
	require.NoError(t, err)
	r, err := newLoader(t).Load(context.Background(), snap)
	require.NoError(t, err)
	require.Equal(t, `platform/nodes/dev-gpu-1.yaml:1:1: error: is executable: remove the bit (git update-index --chmod=-x) [path.executable]
platform/nodes/link.yaml:1:1: error: is a symbolic link: an estate holds plain files only [path.symlink]
tenants/linked:1:1: error: is a symbolic link: an estate holds plain files only [path.symlink]
tenants/physics/sub:1:1: error: is a submodule: an estate holds plain files only [path.submodule]
`, render(r))

	_, err = estate.Dir(filepath.Join(dir, "nowhere"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = estate.Dir(at("Makefile"))
	require.Error(t, err)
}

func TestBlobID(t *testing.T) {
	require.Equal(t, "ce013625030ba8dba906f756967f9e9ca394464a", estate.BlobID([]byte("hello\n"))) // git hash-object
}

// broken is a snapshot with one part that cannot be listed and one unreadable file.
type broken struct {
	schema.Snapshot
	part, file string
}

var errBroken = errors.New("object not found")

func (b broken) Files(ctx context.Context, p schema.Part) ([]schema.File, error) {
	if p.Name == b.part {
		return nil, errBroken
	}
	return b.Snapshot.Files(ctx, p)
}

func (b broken) Read(ctx context.Context, f schema.File, most int) ([]byte, bool, error) {
	if f.Path == b.file {
		return nil, false, errBroken
	}
	return b.Snapshot.Read(ctx, f, most)
}

// The content of an unreadable part is unknown; the other parts are read.
func TestUnreadablePartAffectsNoOther(t *testing.T) {
	for name, snap := range map[string]schema.Snapshot{
		"listing": broken{Snapshot: estate.Files(lab(t)), part: "tenants/physics"},
		"reading": broken{Snapshot: estate.Files(lab(t)), file: trainFile},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := newLoader(t).Load(context.Background(), snap)
			require.NoError(t, err)
			require.Equal(t, []string{"tenants/physics"}, r.Unreadable)
			require.Len(t, r.Diagnostics, 1)
			require.Equal(t, "part.unreadable", r.Diagnostics[0].Code)
			require.NotContains(t, r.Desired.Tenants, "physics")
			require.NotNil(t, r.Desired.Instance(schema.InstanceKey("biology", "genomes", "assembly")))
		})
	}
}

// A file name with control characters or path tricks is a finding like any other.
func TestHostileFileNamesAreFindings(t *testing.T) {
	for _, name := range []string{"a\nb.yaml", "a\u202eb.yaml", "\x1b[2J.yaml", "a\xff.yaml"} {
		files := lab(t)
		files["tenants/physics/projects/lattice/instances/"+name] = "x"
		r, err := newLoader(t).Load(context.Background(), estate.Files(files))
		require.NoError(t, err)
		require.Len(t, r.Diagnostics, 1)
		require.Equal(t, "path.name", r.Diagnostics[0].Code)
		require.NotNil(t, r.Desired.Instance(schema.InstanceKey("physics", "lattice", "train")))
	}
}

// Every code in the source is documented, and the reverse.
func TestCodesAreDocumented(t *testing.T) {
	given, documented := map[string]bool{}, map[string]bool{}
	code := regexp.MustCompile(`"((?:file|part|path|yaml|schema|ref|conflict|tenant|kind)\.[a-z][a-z-]+)"`)
	for _, dir := range []string{".", "../load"} {
		files, err := filepath.Glob(dir + "/*.go")
		require.NoError(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, m := range code.FindAllStringSubmatch(string(data), -1) {
				if m[1] != "tenant.yaml" {
					given[m[1]] = true
				}
			}
		}
		for _, c := range documentedCodes(t, dir) {
			documented[c] = true
		}
	}
	require.Equal(t, sorted(documented), sorted(given))
}

func documentedCodes(t *testing.T, dir string) (codes []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), dir+"/doc.go", nil, parser.ParseComments|parser.PackageClauseOnly)
	require.NoError(t, err)
	for line := range strings.Lines(f.Doc.Text()) {
		if fields := strings.Fields(line); strings.HasPrefix(line, "\t") && len(fields) > 1 {
			codes = append(codes, fields[0])
		}
	}
	return codes
}

// Every code has a case with that finding.
func TestCodesAreTested(t *testing.T) {
	// These need a broken reader, a device file, or a definition that cannot be
	// explained.
	shown := map[string]bool{"file.unreadable": true, "path.mode": true, "schema.value": true}
	// These need several repositories: cmd/berth's script tenants shows them.
	maps.Copy(shown, map[string]bool{"conflict.repository": true, "tenant.shadowed": true, "tenant.no-repository": true})
	archives, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	more, err := filepath.Glob("testdata/campus/*.txtar")
	require.NoError(t, err)
	hostile, err := filepath.Glob("testdata/hostile/*.txtar")
	require.NoError(t, err)
	archives = slices.Concat(archives, more, hostile)
	code := regexp.MustCompile(`\[([a-z]+\.[a-z-]+)\]`)
	for _, name := range archives {
		archive, err := txtar.ParseFile(name)
		require.NoError(t, err)
		for _, f := range archive.Files {
			for _, m := range code.FindAllSubmatch(f.Data, -1) {
				shown[string(m[1])] = true
			}
		}
	}
	for _, name := range []string{"bytes_test.go", "bound_test.go", "inforce_campus_test.go", "effect_test.go", "version_test.go"} {
		data, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?:\[|")([a-z]+\.[a-z-]+)(?:\]|")`).FindAllSubmatch(data, -1) {
			shown[string(m[1])] = true
		}
	}
	for _, code := range slices.Concat(documentedCodes(t, "."), documentedCodes(t, "../load")) {
		require.True(t, shown[code], code)
	}
}
