package object

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/reconciler"
)

// Commit is a commit object with the fields that Berth reads.
type Commit struct {
	ID                        plumbing.Hash
	Tree                      plumbing.Hash
	Parents                   []plumbing.Hash
	Author, Email             string
	committer, committerEmail string
	When                      int64 // committer's time, Unix seconds; untrusted
	Message                   string
}

// parseCommit parses the raw bytes of a commit. It ignores unknown headers, such
// as signatures.
func parseCommit(id plumbing.Hash, b []byte) (Commit, error) {
	c := Commit{ID: id}
	head, message, _ := bytes.Cut(b, []byte("\n\n"))
	c.Message = string(message)
	for line := range strings.SplitSeq(string(head), "\n") {
		key, value, _ := strings.Cut(line, " ")
		switch key {
		case "tree", "parent":
			h, err := ParseID(value)
			if err != nil {
				return c, fmt.Errorf("malformed commit: %s: %w", key, err)
			}
			if key == "parent" {
				c.Parents = append(c.Parents, h)
			} else if c.Tree.IsZero() {
				c.Tree = h
			}
		case "author":
			c.Author, c.Email, _ = parsePerson(value)
		case "committer":
			c.committer, c.committerEmail, c.When = parsePerson(value)
		}
	}
	if c.Tree.IsZero() {
		return c, fmt.Errorf("malformed commit: no tree")
	}
	return c, nil
}

// parsePerson parses "Name <mail> seconds zone".
func parsePerson(s string) (name, email string, when int64) {
	open, shut := strings.LastIndexByte(s, '<'), strings.LastIndexByte(s, '>')
	if open < 0 || shut < open {
		return strings.TrimSpace(s), "", 0
	}
	seconds, _, _ := strings.Cut(strings.TrimSpace(s[shut+1:]), " ")
	when, _ = strconv.ParseInt(seconds, 10, 64) // an invalid time is 0
	return strings.TrimSpace(s[:open]), s[open+1 : shut], when
}

// Berth is the committer of Berth's commits, and the author of most of them.
const Berth = "Berth <berth@localhost>"

// EncodeCommit returns a raw commit whose committer is Berth.
func EncodeCommit(tree plumbing.Hash, parents []plumbing.Hash, author string, when time.Time, message string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "tree %s\n", tree)
	for _, p := range parents {
		fmt.Fprintf(&b, "parent %s\n", p)
	}
	fmt.Fprintf(&b, "author %[1]s %[3]d +0000\ncommitter %[2]s %[3]d +0000\n\n%[4]s\n", author, Berth, when.Unix(),
		strings.TrimRight(message, "\n"))
	return b.Bytes()
}

// Public converts the commit to the type of the reconcile loop.
func (c Commit) Public() reconciler.Commit {
	subject, _, _ := strings.Cut(c.Message, "\n")
	out := reconciler.Commit{ID: c.ID.String(), Subject: subject, Author: c.Author, Email: c.Email, When: time.Unix(c.When, 0).UTC()}
	for _, p := range c.Parents {
		out.Parents = append(out.Parents, p.String())
	}
	return out
}

// Body returns the message without its trailers.
func (c Commit) Body() string {
	text := strings.TrimRight(c.Message, "\n")
	if i := strings.LastIndex(text, "\n\n"); i >= 0 {
		return text[:i]
	}
	return text
}

// Trailer returns the value of the last trailer with that name, or "".
func (c Commit) Trailer(name string) string {
	if all := c.Trailers(name); len(all) > 0 {
		return all[len(all)-1]
	}
	return ""
}

// Trailers returns the values of the trailers with that name.
func (c Commit) Trailers(name string) (out []string) {
	for _, line := range c.TrailerLines(name) {
		out = append(out, line[len(name)+len(": "):])
	}
	return out
}

// TrailerLines returns the trailers with one of the names. The message must be
// written by Berth: one line each in the last paragraph.
func (c Commit) TrailerLines(names ...string) (out []string) {
	text := strings.TrimRight(c.Message, "\n")
	for line := range strings.SplitSeq(text[strings.LastIndex(text, "\n\n")+1:], "\n") {
		if name, _, ok := strings.Cut(line, ": "); ok && slices.Contains(names, name) {
			out = append(out, line)
		}
	}
	return out
}

// OneLine returns s as one line of a commit message: without control characters
// and with at most limit bytes.
func OneLine(s string, limit int) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f }), " ")
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return s
}

// Identity returns "Name <email>" for a commit header, without characters that
// could end the header. The defaults are Berth and berth@localhost.
func Identity(name, email string) string {
	clean := func(s, fallback string) string {
		s = strings.TrimSpace(strings.Map(func(c rune) rune {
			if c < 0x20 || strings.ContainsRune("<>", c) {
				return -1
			}
			return c
		}, s))
		return cmp.Or(s, fallback)
	}
	return clean(name, "Berth") + " <" + clean(email, "berth@localhost") + ">"
}
