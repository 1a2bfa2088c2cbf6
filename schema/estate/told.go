package estate

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"berth/schema"
	"berth/schema/load"
)

// Told is what the text of a file seems to say it is, whether or not it can be
// read as a document. It is a guess, for where a file may be meant to be another;
// nothing may be permitted by it. All is in lower case but the kinds.
type Told struct {
	UIDs  []string
	Kinds []schema.Kind
	Names []string // of anything in it
}

// maxTold bounds each list of a Told; a document has one uid and one kind.
const maxTold = 50

var (
	toldUID  = fieldForm("uid")
	toldKind = fieldForm("kind")
	toldName = fieldForm("name")
)

// fieldForm finds a field's values in text that may be no YAML.
func fieldForm(name string) *regexp.Regexp {
	return regexp.MustCompile(`(?im)(?:^|[\s{,"'])` + name + `["']?[ \t]*:[ \t]*["']?([-\w.:/]+)`)
}

// Told guesses what a file of a snapshot is meant to be. What is no plain text
// says nothing.
func (l *Loader) Told(ctx context.Context, snap schema.Snapshot, f schema.File) (Told, error) {
	if f.Mode != schema.ModePlain && f.Mode != schema.ModeExecutable {
		return Told{}, nil
	}
	if t, ok := l.told.get(f.Blob); ok {
		return t, nil
	}
	data, _, err := snap.Read(ctx, f, load.MaxBytes)
	if err != nil {
		return Told{}, fmt.Errorf("read %s: %w", f.Path, err)
	}
	t := toldBy(string(data))
	l.told.add(f.Blob, t)
	return t, nil
}

func toldBy(text string) Told {
	values := func(form *regexp.Regexp) (out []string) {
		for _, m := range form.FindAllStringSubmatch(text, maxTold) {
			if v := strings.ToLower(m[1]); !slices.Contains(out, v) {
				out = append(out, strings.Clone(v))
			}
		}
		return out
	}
	t := Told{UIDs: values(toldUID), Names: values(toldName)}
	said := values(toldKind)
	for _, k := range schema.Kinds() {
		if slices.Contains(said, strings.ToLower(string(k))) {
			t.Kinds = append(t.Kinds, k)
		}
	}
	return t
}

// File is what stands at path, if it is any of Berth's business.
func (r *Result) File(path string) (schema.File, bool) {
	if s := r.part(partOf(path).Name); s != nil {
		if doc := s.at(path); doc != nil {
			return doc.File, true
		}
	}
	return schema.File{}, false
}

// Invalid is what stands at path, if that is no valid document because of itself
// and not because of another: it is wrong, or stands where none may.
func (r *Result) Invalid(path string) (schema.File, bool) {
	f, ok := r.File(path)
	return f, ok && r.Desired.Header(r.Key(path)) == nil && !r.Waits(path)
}

// Right is the header of what stands at path, if that is right in itself, though
// it may wait for another.
func (r *Result) Right(path string) *schema.Header {
	if s := r.part(partOf(path).Name); s != nil {
		if doc := s.at(path); doc != nil && doc.Valid() {
			return doc.Header
		}
	}
	return nil
}
