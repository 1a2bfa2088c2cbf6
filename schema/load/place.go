package load

import (
	"errors"
	"strings"

	"berth/schema"
)

// kindPlaces lists the places of documents of a kind, for messages.
func kindPlaces(kind schema.Kind) (ps []string) {
	for _, p := range kind.Info().Places {
		ps = append(ps, p.String())
	}
	return ps
}

// kinds returns the names of all kinds, sorted.
func kinds() []string {
	var ks []string
	for _, k := range schema.Kinds() {
		ks = append(ks, string(k))
	}
	return ks
}

// maxPlace is an upper limit for the path of any document, in bytes.
const maxPlace = 255

// Locate returns the Key of the document at path. The finding is nil for a valid path;
// ignore: the file is not part of the estate.
func Locate(path string) (key schema.Key, finding *schema.Diagnostic, ignore bool) {
	refuse := func(code, format string, args ...any) (schema.Key, *schema.Diagnostic, bool) {
		return schema.Key{}, fault(path, pos{1, 1}, code, format, args...), false
	}
	if unsafe := strings.ContainsFunc(path,
		func(r rune) bool { return r < 0x20 || r == 0x7f || schema.UnsafeRune(r) || r == 0xfffd }); unsafe {
		return refuse("path.name", "the file's name holds control or invisible characters; rename it")
	}
	base := path[strings.LastIndexByte(path, '/')+1:]
	if base == "README.md" || base == ".gitkeep" {
		return schema.Key{}, nil, true
	}
	if len(path) > maxPlace {
		return refuse("path.name", "the path is longer than %d bytes, and none of a document is: use shorter names", maxPlace)
	}
	key, ok, err := schema.Locate(path)
	if bad := (*schema.InvalidNameError)(nil); errors.As(err, &bad) {
		return refuse("path.name", "%s is not an identifier: write %s", short(bad.Name), bad.Want)
	}
	if ok {
		return key, nil, false
	}
	if key, ok, _ := schema.Locate(strings.ToLower(path)); ok {
		want, _ := key.Path()
		return refuse("path.case", "names in an estate are lower case; rename the file to %s", want)
	}
	if stem, found := cutExtension(path); found {
		if _, ok, _ := schema.Locate(stem + ".yaml"); ok {
			return refuse("path.extension", "documents end in .yaml; rename the file to %s.yaml, or delete it if that file exists", stem)
		}
	}
	if !strings.HasSuffix(base, ".yaml") {
		return refuse("path.stray", "this is not a document of an estate; only .yaml documents and README.md stand below platform/ and "+
			"tenants/")
	}
	return refuse("path.misplaced", "no kind of document belongs here")
}

func cutExtension(path string) (string, bool) {
	for _, ext := range []string{".yml", ".json", ".yaml.txt"} {
		if stem, ok := strings.CutSuffix(strings.ToLower(path), ext); ok {
			return stem, true
		}
	}
	return path, false
}
