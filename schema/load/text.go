package load

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"berth/schema"
)

// checkText refuses content that is too large or that displays differently from its
// bytes (CVE-2021-42574), comments included.
func checkText(file string, data []byte, more bool) *schema.Diagnostic {
	if more || len(data) > MaxBytes {
		return fault(file, pos{1, 1}, "file.too-large", "larger than %d KiB: split it, a document declares one resource", MaxBytes>>10)
	}
	if bytes.HasPrefix(data, []byte("\ufeff")) {
		return fault(file, pos{1, 1}, "file.bom", "starts with a byte order mark: save it as UTF-8 without one")
	}
	at, marks := pos{1, 1}, schema.Marks(0)
	for i := 0; i < len(data); {
		c, n := utf8.DecodeRune(data[i:])
		switch {
		case c == utf8.RuneError && n == 1:
			return fault(file, at, "file.encoding", "is not UTF-8: save it as UTF-8")
		case c == '\n':
			at = pos{at.line + 1, 0}
		case c == '\t' || c == '\r' && i+1 < len(data) && data[i+1] == '\n':
		case schema.UnsafeRune(c):
			return fault(file, at, "file.control", "holds the character U+%04X, which is invisible or changes how text is read: remove it",
				c)
		case marks.Add(c):
			return fault(file, at, "file.control", piled, schema.MaxMarks)
		}
		at.column++
		i += n
	}
	return nil
}

const piled = "holds more than %d combining marks in a row, which cover what stands around them: remove them"

// parseYAML reads the one document of data as nodes.
func parseYAML(file string, data []byte) (*yaml.Node, *schema.Diagnostic) {
	if line := directive(data); line > 0 {
		return nil, fault(file, pos{line, 1}, "yaml.tag", "directives (%%) are not read: remove the line")
	}
	if e := conflictMarkers(data); e != nil {
		return nil, fault(file, e.pos, "yaml.syntax", "%s", e.message)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	err := dec.Decode(&doc)
	switch {
	case errors.Is(err, io.EOF) || err == nil && (doc.Kind != yaml.DocumentNode || len(doc.Content) == 0):
		return nil, fault(file, pos{1, 1}, "yaml.empty", "holds no document: declare one, or remove the file")
	case err != nil:
		return nil, syntaxFinding(file, data, err)
	}
	var second yaml.Node
	switch err := dec.Decode(&second); {
	case errors.Is(err, io.EOF):
		return doc.Content[0], nil
	case err != nil:
		return nil, syntaxFinding(file, data, err)
	default:
		at := position(&second)
		if len(second.Content) > 0 {
			at = position(second.Content[0])
		}
		if isEmpty(doc.Content[0]) || len(second.Content) == 0 || isEmpty(second.Content[0]) {
			return nil, fault(file, pos{lastMark(data, at.line), 1}, "yaml.second-document",
				"this line starts a second document, and one of the two is empty: remove the line")
		}
		return nil, fault(file, at, "yaml.second-document",
			"a second document starts here: a file holds one, put it into a file of its own")
	}
}

func isEmpty(n *yaml.Node) bool { return n.Tag == "!!null" && n.Value == "" }

// lastMark returns the last line up to one that starts a document (---), or that line.
func lastMark(data []byte, line int) int {
	lines := bytes.Split(data, []byte("\n"))
	for i := min(line, len(lines)); i > 0; i-- {
		if bytes.HasPrefix(lines[i-1], []byte("---")) {
			return i
		}
	}
	return line
}

// directive returns the line of a directive before the document, or 0. A directive could
// change the meaning of tags or select another YAML version.
func directive(data []byte) int {
	number := 0
	for line := range bytes.Lines(data) {
		number++
		switch text := bytes.TrimSpace(line); {
		case len(text) == 0 || text[0] == '#':
		case line[0] == '%':
			return number
		default:
			return 0
		}
	}
	return 0
}

var yamlLine = regexp.MustCompile(`^yaml: (line \d+: )?`)

// syntaxFinding gives a parser's error its position. The parser's line is that of the
// surrounding block or off by one, and it has no column. Therefore the search reads
// shorter and shorter heads of the file for the first line that makes it fail.
func syntaxFinding(file string, data []byte, cause error) *schema.Diagnostic {
	message := yamlLine.ReplaceAllString(cause.Error(), "")
	lines := bytes.SplitAfter(data, []byte("\n"))
	fails := func(n int) bool { // whether the first n lines fail this way
		var doc yaml.Node
		dec := yaml.NewDecoder(bytes.NewReader(bytes.Join(lines[:n], nil)))
		for {
			err := dec.Decode(&doc)
			if errors.Is(err, io.EOF) {
				return false
			}
			if err != nil {
				return yamlLine.ReplaceAllString(err.Error(), "") == message
			}
		}
	}
	low, high := 0, len(lines) // low lines pass, high fail
	for high-low > 1 {
		if mid := (low + high) / 2; fails(mid) {
			high = mid
		} else {
			low = mid
		}
	}
	line := string(bytes.TrimRight(lines[high-1], "\r\n"))
	column := len(line) - len(strings.TrimLeft(line, " \t")) + 1
	code := "yaml.syntax"
	if tab := strings.IndexByte(line[:column-1], '\t'); tab >= 0 {
		code, message, column = "yaml.tab", "indent with spaces: YAML has no tabs", tab+1
	}
	switch {
	case code != "yaml.syntax":
	case strings.HasPrefix(message, "exceeded max depth"):
		code, message = "yaml.depth", fmt.Sprintf("nested deeper than %d levels", maxDepth)
	case strings.Contains(message, "anchor"): // the name may be a password that starts with an asterisk
		code, message = "yaml.alias", "aliases and anchors are not read: write the value out, in quotes if it starts with * or &"
	default:
		text := strings.Split(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n")
		e := broken{lines: text, at: min(high, len(text)) - 1, cause: message}.explain()
		message, high, column = e.message, e.line, e.column
	}
	return fault(file, pos{high, column}, code, "%s", message)
}
