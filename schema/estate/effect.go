package estate

import (
	"berth/schema"
	"berth/schema/load"
)

// WithoutEffect warns of what is valid and has no effect yet (schema.KindInfo.NoEffect), by part
// and path: fields that a document gives.
func (r *Result) WithoutEffect() (out []schema.Diagnostic) {
	for _, s := range r.trees {
		for _, doc := range s.docs {
			if !s.out(doc) {
				out = append(out, withoutEffect(doc)...)
			}
		}
	}
	return out
}

// WithoutEffectAt is WithoutEffect of one file.
func (r *Result) WithoutEffectAt(path string) []schema.Diagnostic {
	if s := r.tree(partOf(path).Name); s != nil {
		if doc := s.at(path); doc != nil && !s.out(doc) {
			return withoutEffect(doc)
		}
	}
	return nil
}

func withoutEffect(d *load.Document) (out []schema.Diagnostic) {
	if !d.Valid() {
		return nil
	}
	const code, message = "kind.no-effect", "is checked and has no effect in this version of Berth: so far "
	for _, n := range d.Key.Kind.Info().NoEffect {
		if d.Header.Has(n.Field) {
			out = append(out, load.Found(d, n.Field, schema.SeverityWarning, code, message+n.SoFar))
		}
	}
	return out
}
