package report

import (
	"fmt"
	"regexp"
	"strings"
)

// links turns file names into links to the forge. Without a prefix they are plain code.
type links struct {
	prefix     string // such as https://github.com/lab/estate/blob/
	base, head string
	changed    map[string]bool // files that differ between head and base
}

// maxLink limits the path of a link, in bytes.
const maxLink = 300

var commitID = regexp.MustCompile(`^[0-9a-f]{40,64}$`)

// place returns the known parts of file:line:column as code, with a link.
func (l *links) place(file string, line, column int) string {
	return l.link(place(file, line, column), file, line)
}

// source is place, but a link shows only the base name of the file.
func (l *links) source(file string, line int) string {
	text := place(file, line, 0)
	if l.url(file, line) != "" {
		text = text[strings.LastIndexByte(text, '/')+1:]
	}
	return l.link(text, file, line)
}

func (l *links) link(text, file string, line int) string {
	url := l.url(file, line)
	if url == "" {
		return code(text)
	}
	return "[" + code(text) + "](" + url + ")"
}

// url returns the forge's address of a file; "" if it is unsafe or unknown.
func (l *links) url(file string, line int) string {
	at := l.base
	if l.changed[file] {
		at = l.head
	}
	if l.prefix == "" || !commitID.MatchString(at) || len(file) > maxLink || file == "." {
		return ""
	}
	url := l.prefix + at
	for segment := range strings.SplitSeq(file, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return ""
		}
		url += "/" + escapeSegment(segment)
	}
	if line > 0 {
		url += fmt.Sprintf("#L%d", line)
	}
	return url
}

// escapeSegment escapes all bytes of a path segment that have a meaning in a URL or in
// Markdown.
func escapeSegment(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '.' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// place returns the known parts of file:line:column.
func place(file string, line, column int) string {
	switch {
	case line == 0:
		return file
	case column == 0:
		return fmt.Sprintf("%s:%d", file, line)
	}
	return fmt.Sprintf("%s:%d:%d", file, line, column)
}
