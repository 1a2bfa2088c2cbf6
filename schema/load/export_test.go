package load

import "berth/schema"

// Gate is the gate's first half: what a document says, or what is wrong with it.
func Gate(data []byte) (map[string]any, []schema.Diagnostic) {
	t, findings := readTree("x.yaml", data, false)
	if t == nil {
		return nil, findings
	}
	return t.value, findings
}

// Locate is where a path belongs.
func Locate(path string) (schema.Key, *schema.Diagnostic, bool) { return locate(path) }

// PartOf is the part of an estate that a path belongs to.
func PartOf(path string) string { return partOf(path).Name }
