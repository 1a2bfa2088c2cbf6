package estate

import (
	"fmt"

	"berth/schema"
	"berth/schema/load"
)

// WithoutEffect warns of valid documents that have no effect yet, by part and path:
// kinds that Berth does not deploy (schema.KindInfo.NoEffect).
func (r *Result) WithoutEffect() (out []schema.Diagnostic) {
	for _, s := range r.trees {
		for _, doc := range s.docs {
			if f := withoutEffect(doc); f != nil && !s.out(doc) {
				out = append(out, *f)
			}
		}
	}
	return out
}

// WithoutEffectAt is WithoutEffect of one file; nil if it has an effect.
func (r *Result) WithoutEffectAt(path string) *schema.Diagnostic {
	if s := r.tree(partOf(path).Name); s != nil {
		if doc := s.at(path); doc != nil && !s.out(doc) {
			return withoutEffect(doc)
		}
	}
	return nil
}

func withoutEffect(d *load.Document) *schema.Diagnostic {
	if !d.Valid() {
		return nil
	}
	const code = "kind.no-effect"
	if what := d.Key.Kind.Info().NoEffect; what != "" {
		f := load.Found(d, "kind", schema.SeverityWarning, code,
			fmt.Sprintf("a document of kind %s is checked and has no effect in this version of Berth: so far %s", d.Key.Kind, what))
		return &f
	}
	return nil
}
