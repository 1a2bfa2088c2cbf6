package signature

import (
	"bytes"
	"errors"
)

// maxHeader limits a commit's headers, including its signature, in bytes. Merges of many
// signed tags are much smaller.
const maxHeader = 256 << 10

// Split separates the raw bytes of a commit into its signature and the signed bytes:
// like Git, all but the header gpgsig. Both are nil if the commit has no signature. It
// returns an error, with a readable reason, if two programs could read the signature
// differently or the signature would not cover all of the commit.
func Split(raw []byte) (payload, sig []byte, err error) {
	head := headers(raw)
	if len(head) > maxHeader {
		return nil, nil, errors.New("its headers are too long")
	}
	if !bytes.Contains(head, []byte("\ngpgsig")) {
		return nil, nil, nil
	}
	if bytes.IndexByte(raw, 0) >= 0 {
		return nil, nil, errors.New("it contains a NUL byte, where some programs stop reading")
	}
	payload = make([]byte, 0, len(raw))
	last, signing := -1, false
	for line := range bytes.Lines(head) {
		switch isContinued := line[0] == ' ' && last == rankOther; {
		case isContinued && signing:
			sig = append(sig, line[1:]...)
			continue
		case isContinued:
			payload = append(payload, line...)
			continue
		}
		key, value, _ := bytes.Cut(line, []byte(" "))
		next := rank(string(key))
		if !mayFollow(last, next) {
			return nil, nil, errors.New("its headers are out of order")
		}
		last, signing = next, bytes.HasPrefix(line, []byte("gpgsig "))
		switch {
		case signing && sig != nil:
			return nil, nil, errors.New("it carries two signatures")
		case signing:
			sig = append(sig, value...)
		case bytes.HasPrefix(line, []byte("gpgsig")):
			return nil, nil, errors.New("it carries a header that no signature covers")
		default:
			payload = append(payload, line...)
		}
	}
	if len(sig) == 0 {
		return nil, nil, errors.New("its signature is empty")
	}
	return append(payload, raw[len(head):]...), sig, nil
}

// headers returns the bytes of a commit before its message.
func headers(raw []byte) []byte {
	if i := bytes.Index(raw, []byte("\n\n")); i >= 0 {
		return raw[:i+1]
	}
	return raw
}

// mayFollow reports whether a header of rank next may stand behind one of rank last.
func mayFollow(last, next int) bool {
	return next == last+1 || next == rankAuthor && last == rankTree || next == last && (next == rankParent || next == rankOther)
}

// The order of a commit's headers. Git expects these headers in this order; other
// programs may accept any order.
const (
	rankTree = iota
	rankParent
	rankAuthor
	rankCommitter
	rankOther
)

func rank(key string) int {
	switch key {
	case "tree":
		return rankTree
	case "parent":
		return rankParent
	case "author":
		return rankAuthor
	case "committer":
		return rankCommitter
	}
	return rankOther
}
