package gitrepo

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/reconciler"
)

// commit is a commit object, as far as Berth reads it.
type commit struct {
	id                        plumbing.Hash
	tree                      plumbing.Hash
	parents                   []plumbing.Hash
	author, email             string
	committer, committerEmail string
	when                      int64 // committer's time, Unix seconds; anyone may have made it up
	message                   string
}

// parseCommit reads a commit's raw bytes. Headers it does not know, such as
// signatures, are skipped.
func parseCommit(id plumbing.Hash, b []byte) (commit, error) {
	c := commit{id: id}
	head, message, _ := bytes.Cut(b, []byte("\n\n"))
	c.message = string(message)
	for line := range strings.SplitSeq(string(head), "\n") {
		key, value, _ := strings.Cut(line, " ")
		switch key {
		case "tree", "parent":
			h, err := parseID(value)
			if err != nil {
				return c, fmt.Errorf("malformed commit: %s: %w", key, err)
			}
			if key == "parent" {
				c.parents = append(c.parents, h)
			} else if c.tree.IsZero() {
				c.tree = h
			}
		case "author":
			c.author, c.email, _ = parsePerson(value)
		case "committer":
			c.committer, c.committerEmail, c.when = parsePerson(value)
		}
	}
	if c.tree.IsZero() {
		return c, fmt.Errorf("malformed commit: no tree")
	}
	return c, nil
}

// parsePerson reads "Name <mail> seconds zone".
func parsePerson(s string) (name, email string, when int64) {
	open, shut := strings.LastIndexByte(s, '<'), strings.LastIndexByte(s, '>')
	if open < 0 || shut < open {
		return strings.TrimSpace(s), "", 0
	}
	seconds, _, _ := strings.Cut(strings.TrimSpace(s[shut+1:]), " ")
	when, _ = strconv.ParseInt(seconds, 10, 64) // an impossible time is no time
	return strings.TrimSpace(s[:open]), s[open+1 : shut], when
}

// encodeCommit is the raw commit object.
func encodeCommit(tree plumbing.Hash, parents []plumbing.Hash, who string, now time.Time, message string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "tree %s\n", tree)
	for _, p := range parents {
		fmt.Fprintf(&b, "parent %s\n", p)
	}
	stamp := fmt.Sprintf("%s %d +0000", who, now.Unix())
	fmt.Fprintf(&b, "author %s\ncommitter %s\n\n%s\n", stamp, stamp, strings.TrimRight(message, "\n"))
	return b.Bytes()
}

// public is the commit as the loop sees it.
func (c commit) public() reconciler.Commit {
	subject, _, _ := strings.Cut(c.message, "\n")
	out := reconciler.Commit{ID: c.id.String(), Subject: subject, Author: c.author, Email: c.email, When: time.Unix(c.when, 0).UTC()}
	for _, p := range c.parents {
		out.Parents = append(out.Parents, p.String())
	}
	return out
}

// body is the message without its trailers.
func (c commit) body() string {
	text := strings.TrimRight(c.message, "\n")
	if i := strings.LastIndex(text, "\n\n"); i >= 0 {
		return text[:i]
	}
	return text
}

// trailer is the value of the last trailer of that name, or "".
func (c commit) trailer(name string) string {
	if all := c.trailers(name); len(all) > 0 {
		return all[len(all)-1]
	}
	return ""
}

// trailers are the values of the trailers of that name in a message that Berth
// wrote: one line each in the last paragraph.
func (c commit) trailers(name string) []string {
	text := strings.TrimRight(c.message, "\n")
	i := strings.LastIndex(text, "\n\n")
	var out []string
	for line := range strings.SplitSeq(text[i+1:], "\n") {
		if v, ok := strings.CutPrefix(line, name+": "); ok {
			out = append(out, v)
		}
	}
	return out
}

// oneLine makes text fit for one line of a commit message: no control
// characters, and not endless.
func oneLine(s string, limit int) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f }), " ")
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return s
}
