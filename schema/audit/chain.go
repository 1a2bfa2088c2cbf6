package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"
)

// Head is the end of a chain: the sequence and hash of its last record. The
// zero Head is that of a chain without records.
type Head struct {
	Sequence uint64 `json:"sequence"`
	Hash     string `json:"hash"`
}

// ID returns the hash of r without its time and its position in the chain. The same
// decision about the same change always has the same ID.
func (r Record) ID() string { return normal(r).id() }

// id returns the ID of a record that is normal already.
func (r Record) id() string {
	r.RecordID, r.OccurredAt, r.Link = "", time.Time{}, Link{}
	sum := sha256.Sum256(encode(r))
	return hex.EncodeToString(sum[:])[:32]
}

// Chain appends records to the chain that ends at prev. It normalises them, so that they
// decode to the same values, and sets sequence, previous, hash and a missing record_id.
// It does not change its argument.
func Chain(prev Head, records []Record) []Record {
	out := slices.Clone(records)
	for i, r := range out {
		r = normal(r)
		if r.RecordID == "" {
			r.RecordID = r.id()
		}
		r.Sequence, r.Previous = prev.Sequence+1, prev.Hash
		r.Hash = r.sum()
		prev = Head{r.Sequence, r.Hash}
		out[i] = r
	}
	return out
}

// Encode returns the canonical JSON of a record: one line, without a newline.
func Encode(r Record) []byte { return encode(normal(r)) }

// Decode reads a record. It accepts only the canonical form, so a change of any byte is
// detected.
func Decode(line []byte) (Record, error) {
	var r Record
	if err := json.Unmarshal(line, &r); err != nil {
		return Record{}, fmt.Errorf("not an audit record: %w", err)
	}
	if string(encode(r)) != string(line) {
		return Record{}, errors.New("not an audit record: it is not in canonical form, so it was changed by hand")
	}
	return r, nil
}

// sum returns the correct value of Hash.
func (r Record) sum() string {
	sum := sha256.Sum256(encode(struct {
		Record
		Hash string `json:"hash,omitempty"` // hides the record's Hash
	}{Record: r}))
	return hex.EncodeToString(sum[:])
}

// normal returns r as it decodes from JSON: times in UTC, text in valid UTF-8. A time
// without a JSON form becomes the zero time. Only text that is not UTF-8 is decoded: it is rare, and decoding costs most.
func normal(r Record) Record {
	r.OccurredAt = r.OccurredAt.UTC().Round(0)
	if y := r.OccurredAt.Year(); y < 0 || y > 9999 {
		r.OccurredAt = time.Time{}
	}
	if r.Approvers = slices.Clone(r.Approvers); len(r.Approvers) == 0 {
		r.Approvers = nil
	}
	data := encode(r)
	if !bytes.Contains(data, []byte(`\ufffd`)) { // what encode writes in place of a byte that is not UTF-8
		return r
	}
	var out Record
	if err := json.Unmarshal(data, &out); err != nil {
		panic(err) // canonical JSON from Encode
	}
	return out
}

func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings, numbers and a time that normal bounds
	}
	return data
}

// Line is one line of the audit log with its position. Err is the reason why it is
// unreadable.
type Line struct {
	Record
	File   string
	Number int // of the line, from 1
	Err    error
}

// BrokenError is the first break of a chain.
type BrokenError struct {
	Sequence uint64 // sequence of the record, or the expected one
	File     string // "" if a record is missing at the end
	Line     int
	What     string
}

func (e *BrokenError) Error() string {
	at := fmt.Sprintf("record %d: %s", e.Sequence, e.What)
	if e.File == "" {
		return at
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, at)
}

// Verify checks a whole chain, in order, and returns its end. It returns a *BrokenError
// at the first changed, dropped, added, repeated or moved record. It detects records
// missing at the end by head, which each status commit copies.
func Verify(lines iter.Seq[Line], head Head) (Head, error) {
	return verify(Head{}, lines, head)
}

// VerifyTail verifies only the last lines of a chain, in order. It trusts the first of
// them about the records before it.
func VerifyTail(lines []Line, head Head) (Head, error) {
	var before Head
	if len(lines) > 0 && lines[0].Err == nil && lines[0].Sequence > 1 {
		before = Head{lines[0].Sequence - 1, lines[0].Previous}
	}
	return verify(before, slices.Values(lines), head)
}

func verify(at Head, lines iter.Seq[Line], head Head) (Head, error) {
	for l := range lines {
		broken := &BrokenError{Sequence: at.Sequence + 1, File: l.File, Line: l.Number}
		switch {
		case l.Err != nil:
			broken.What = l.Err.Error()
		case l.Sequence > at.Sequence+1:
			broken.What = fmt.Sprintf("records %d to %d are missing before record %d", at.Sequence+1, l.Sequence-1, l.Sequence)
		case l.Sequence <= at.Sequence:
			broken.What = fmt.Sprintf("record %d stands here, which was there before", l.Sequence)
		case l.Previous != at.Hash:
			broken.What = "it does not follow the record before, so one of the two was changed"
		case l.Hash != l.sum():
			broken.What = "its hash is not that of its contents, so it was changed"
		default:
			at = Head{l.Sequence, l.Hash}
			continue
		}
		return at, broken
	}
	switch {
	case at.Sequence < head.Sequence:
		return at, &BrokenError{Sequence: at.Sequence + 1, What: fmt.Sprintf("the last records, up to %d, are missing", head.Sequence)}
	case at.Sequence > head.Sequence:
		return at, &BrokenError{Sequence: head.Sequence + 1,
			What: fmt.Sprintf("the chain goes on after record %d, the last one that was written", head.Sequence)}
	case at.Hash != head.Hash:
		return at, &BrokenError{Sequence: at.Sequence, What: "the last record has another hash than the one that was written"}
	}
	return at, nil
}
