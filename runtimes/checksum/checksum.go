// Package checksum writes JSON whose first field has the SHA-256 of the rest, so that a reader can detect changes. A file
// that was cut off, damaged by a disk or edited by hand is not trusted.
//
// It must not know the content of the JSON, or its place.
package checksum

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// ErrDamaged: a text is not as Encode wrote it.
var ErrDamaged = errors.New("damaged")

const (
	before = "{\n\t\"sha256\": \""
	after  = "\",\n"
)

// Encode returns a struct that has no field sha256 as indented JSON, with its checksum in that field.
func Encode(v any) ([]byte, error) {
	raw, err := json.MarshalIndent(v, "", "\t")
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	rest, ok := bytes.CutPrefix(raw, []byte("{\n"))
	if !ok {
		return nil, fmt.Errorf("encode %T: not an object with a field", v)
	}
	rest = append(rest, '\n')
	return append([]byte(before+sum(rest)+after), rest...), nil
}

// Decode reads what Encode wrote; any other text is ErrDamaged.
func Decode(raw []byte, v any) error {
	rest, ok := bytes.CutPrefix(raw, []byte(before))
	if !ok || len(rest) < 2*sha256.Size {
		return ErrDamaged
	}
	have, rest := rest[:2*sha256.Size], rest[2*sha256.Size:]
	rest, ok = bytes.CutPrefix(rest, []byte(after))
	if !ok || string(have) != sum(rest) {
		return ErrDamaged
	}
	return json.Unmarshal(raw, v)
}

func sum(of []byte) string {
	s := sha256.Sum256(of)
	return hex.EncodeToString(s[:])
}
