package estate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"cuelang.org/go/cue/cuecontext"
	cueyaml "cuelang.org/go/encoding/yaml"
	"github.com/stretchr/testify/require"

	"berth/schema"
	"berth/schema/estate"
	"berth/schema/load"
)

// seeds returns the documents of the corpus that are short enough to mutate.
func seeds(f *testing.F) (texts []string) {
	for _, h := range corpus(f) {
		for _, path := range h.touched {
			if text, ok := h.files[path]; ok && len(text) < 4<<10 {
				texts = append(texts, text)
			}
		}
	}
	slices.Sort(texts)
	return slices.Compact(texts)
}

// canonical returns a value as JSON, and whether YAML can express it: JSON writes very
// large and very small numbers with an exponent, which the reader does not accept.
func canonical(t *testing.T, value any) (data []byte, plain bool) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	require.NoError(t, e.Encode(value))
	plain = true
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, inner := range v {
				walk(inner)
			}
		case []any:
			for _, inner := range v {
				walk(inner)
			}
		case float64:
			plain = plain && (v == 0 || math.Abs(v) < 1e21 && math.Abs(v) >= 1e-6)
		}
	}
	walk(value)
	return bytes.TrimSpace(b.Bytes()), plain
}

// inside checks that findings are at positions in their text, and can be displayed.
func inside(t *testing.T, text []byte, findings []schema.Diagnostic) {
	lines := strings.Split(string(text), "\n")
	for _, d := range findings {
		require.True(t, 1 <= d.Line && d.Line <= len(lines), "%v", d)
		require.True(t, 1 <= d.Column && d.Column <= utf8.RuneCountInString(lines[d.Line-1])+1, "%v of %q", d, lines[d.Line-1])
		require.True(t, utf8.ValidString(d.Message+d.Path), "%q", d.Message)
		require.False(t, strings.ContainsFunc(d.Message+d.Path, func(c rune) bool { return unicode.In(c, unicode.Cc, unicode.Cf) }), "%q",
			d.Message)
		require.Less(t, len(d.Message), 2048)
	}
}

// FuzzGate: for any bytes, the reader returns findings with positions or a value. The
// value, written again, reads as the same value. If another YAML reader accepts the
// text, it reads the same value.
func FuzzGate(f *testing.F) {
	for _, text := range seeds(f) {
		f.Add([]byte(text))
	}
	anything, err := load.NewSettings("#Any: {...}", "#Any")
	require.NoError(f, err)
	gate := func(data []byte) (map[string]any, []schema.Diagnostic) {
		read := anything.Read("x.yaml", data)
		return read.Value, read.Findings
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		value, findings := gate(data)
		inside(t, data, findings)
		if value == nil {
			require.NotEmpty(t, findings)
			return
		}
		require.Empty(t, findings)
		text, plain := canonical(t, value)
		if !plain || len(text) > 60<<10 {
			return
		}
		again, findings := gate(text)
		require.Empty(t, findings, "%s", text)
		same, _ := canonical(t, again)
		require.Equal(t, string(text), string(same))

		file, err := cueyaml.Extract("x.yaml", data)
		if err != nil {
			return
		}
		other, err := cuecontext.New().BuildFile(file).MarshalJSON()
		if err != nil {
			return
		}
		require.JSONEq(t, string(text), string(other))
	})
}

// FuzzPlace: a path is that of one document, or of none. Its key gives the same path,
// and belongs to the path's owner.
func FuzzPlace(f *testing.F) {
	for _, h := range corpus(f) {
		for _, path := range h.touched {
			f.Add(path)
		}
	}
	for _, path := range sorted(hostileBase(f)) {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		key, finding, ignore := load.Locate(path)
		if finding != nil {
			require.True(t, key.IsZero())
			inside(t, nil, []schema.Diagnostic{*finding})
			return
		}
		if ignore {
			require.True(t, key.IsZero())
			return
		}
		again, err := key.Path()
		require.NoError(t, err)
		require.Equal(t, path, again)
		require.Equal(t, strings.ToLower(path), path)
		require.NotContains(t, path, "..")
		owner := key.Tenant
		if key.Kind == schema.KindTenant {
			owner = key.Name
		}
		part := "platform"
		if owner != "" {
			part = "tenants/" + owner
		}
		require.Equal(t, part, estate.PartOf(path))
	})
}

// FuzzDocument: any content of one tenant's document leaves the reader intact and the
// other tenant unchanged.
func FuzzDocument(f *testing.F) {
	for _, text := range seeds(f) {
		f.Add([]byte(text))
	}
	loader, base := newLoader(f), hostileBase(f)
	alone, err := loader.Load(context.Background(), estate.Files(base))
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, data []byte) {
		files := maps.Clone(base)
		files[trainFile] = string(data)
		r, err := loader.Load(context.Background(), estate.Files(files))
		require.NoError(t, err)
		var own []schema.Diagnostic
		for _, d := range r.Diagnostics {
			require.NotEqual(t, "file.unreadable", d.Code)
			if d.File == trainFile {
				own = append(own, d)
			}
		}
		inside(t, data, own)
		require.Equal(t, schema.HasErrors(own) || len(r.Needs[trainFile]) > 0,
			r.Desired.Instance(schema.InstanceKey("physics", "lattice", "train")) == nil)
		require.Equal(t, alone.Desired.Tenants["biology"], r.Desired.Tenants["biology"])
	})
}
