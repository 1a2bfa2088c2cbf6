package object

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/reconciler"
)

// ModeDir is the mode of a directory in a tree.
const ModeDir uint32 = 0o040000

// emptyTree is the id of a tree without entries.
const emptyTree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

// Entry is one entry of a tree, with the values that the tree holds.
type Entry struct {
	Mode uint32
	Name string // raw bytes; anything but NUL
	ID   plumbing.Hash
}

// IsDir says whether an entry is a directory.
func (e Entry) IsDir() bool { return e.Mode == ModeDir }

// ParseTree parses the raw bytes of a tree. It keeps all names and their order;
// the caller checks them.
func ParseTree(b []byte) ([]Entry, error) {
	var out []Entry
	for len(b) > 0 {
		space := bytes.IndexByte(b, ' ')
		if space < 1 || space > 6 {
			return nil, fmt.Errorf("%w: no mode at entry %d", reconciler.ErrUnreadable, len(out))
		}
		mode, err := strconv.ParseUint(string(b[:space]), 8, 32)
		if err != nil {
			return nil, fmt.Errorf("%w: mode of entry %d", reconciler.ErrUnreadable, len(out))
		}
		b = b[space+1:]
		nul := bytes.IndexByte(b, 0)
		if nul < 0 || len(b) < nul+21 {
			return nil, fmt.Errorf("%w: entry %d is cut off", reconciler.ErrUnreadable, len(out))
		}
		e := Entry{Mode: uint32(mode), Name: string(b[:nul])}
		copy(e.ID[:], b[nul+1:nul+21])
		out = append(out, e)
		b = b[nul+21:]
	}
	return out, nil
}

// EncodeTree sorts entries in Git's order and returns the raw tree. Git sorts by
// name and compares a directory's name with a trailing slash.
func EncodeTree(entries []Entry) []byte {
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(sortName(a), sortName(b)) })
	var out []byte
	for _, e := range entries {
		out = strconv.AppendUint(out, uint64(e.Mode), 8)
		out = append(out, ' ')
		out = append(out, e.Name...)
		out = append(out, 0)
		out = append(out, e.ID[:]...)
	}
	return out
}

func sortName(e Entry) string {
	if e.IsDir() {
		return e.Name + "/"
	}
	return e.Name
}

// PathName returns name as one element of a path. Most names are returned
// unchanged. An empty name and a name with a slash or backslash are escaped with
// a backslash, which no valid name contains. So distinct names have distinct
// paths, and no name can pass for a longer path.
func PathName(name string) string {
	if name == "" {
		return `\0`
	}
	if !strings.ContainsAny(name, `/\`) {
		return name
	}
	return strings.NewReplacer(`\`, `\\`, `/`, `\x2f`).Replace(name)
}

// plainName reports whether Berth may write the name.
func plainName(name string) bool {
	if name == "" || name == "." || name == ".." || strings.EqualFold(name, ".git") || PathName(name) != name {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool { return r < 0x20 || r == 0x7f || r == '\uFFFD' })
}

// duplicateName returns a name that occurs more than once in entries, if there is
// one. Git forbids this, and readers of such a tree disagree about the entry they
// see.
func duplicateName(entries []Entry) (string, bool) {
	rising := true
	for i := 1; rising && i < len(entries); i++ {
		rising = entries[i-1].Name < entries[i].Name
	}
	if rising { // usual case
		return "", false
	}
	seen := make(map[string]bool, len(entries))
	for _, e := range entries {
		if seen[e.Name] {
			return e.Name, true
		}
		seen[e.Name] = true
	}
	return "", false
}

// ParseID parses a full object id in lower-case hex. It is the guard for
// everything passed on to Git.
func ParseID(s string) (plumbing.Hash, error) {
	var h plumbing.Hash
	if len(s) != 40 || strings.ToLower(s) != s {
		return h, fmt.Errorf("%q is not a full object id", s)
	}
	if _, err := hex.Decode(h[:], []byte(s)); err != nil {
		return h, fmt.Errorf("%q is not a full object id", s)
	}
	return h, nil
}

// ParseOptionalID is ParseID, with "" for the zero hash.
func ParseOptionalID(s string) (plumbing.Hash, error) {
	if s == "" {
		return plumbing.ZeroHash, nil
	}
	return ParseID(s)
}

// IDString returns the hex id, or "" for the zero hash.
func IDString(h plumbing.Hash) string {
	if h.IsZero() {
		return ""
	}
	return h.String()
}
