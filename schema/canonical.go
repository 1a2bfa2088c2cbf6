package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// CanonicalJSON rewrites one JSON value with sorted keys and no space, numbers
// as they are written, so that equal content has equal bytes.
func CanonicalJSON(data []byte) (json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("canonical JSON: %w", err)
	}
	if dec.More() {
		return nil, fmt.Errorf("canonical JSON: more than one value")
	}
	return json.Marshal(v)
}
