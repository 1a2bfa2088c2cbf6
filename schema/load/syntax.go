package load

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The parser's messages require knowledge of the parser. These rules give the error of
// an invalid YAML file, its position, and the next step.

// broken is a file that the parser refuses: its lines, the index of the first line that
// makes it fail, and the parser's message.
type broken struct {
	lines []string
	at    int
	cause string
}

// explanation is a message and its position.
type explanation struct {
	pos
	message string
}

var (
	conflictStart = regexp.MustCompile(`^<<<<<<<( |$)`)
	conflictEnd   = regexp.MustCompile(`^>>>>>>>( |$)`)
	conflictMark  = regexp.MustCompile(`^(<<<<<<<( |$)|=======\s*$|>>>>>>>( |$))`)
	colonFirst    = regexp.MustCompile(`^[ -]*:(\s|$)`)
	template      = regexp.MustCompile(`\{\{|\{%|\$\{|\$\(`)
	colonNoSpace  = regexp.MustCompile(`^[ -]*[A-Za-z_][-A-Za-z0-9_]*:[^\s:/]`)
	colonBlank    = regexp.MustCompile(`^[ -]*[A-Za-z_][-A-Za-z0-9_]*:([\x{a0}\x{1680}\x{2000}-\x{200a}\x{202f}\x{205f}\x{3000}])`)
	keyAndValue   = regexp.MustCompile(`^[ -]*[^\s:"'#]+:\s+[^\s#|>&]`)
	quotedKey     = regexp.MustCompile(`^(?:[ -]*[^\s:"'#]+:\s+|\s*-\s+)(["'])`)
	dashNoSpace   = regexp.MustCompile(`^ *-[A-Za-z_][-A-Za-z0-9_]*:(\s|$)`)
	keyFirst      = regexp.MustCompile(`^ *[A-Za-z_][-A-Za-z0-9_]*:(\s|$)`)
	bareWord      = regexp.MustCompile(`^[A-Za-z_][^:]*$`)
	flowStart     = regexp.MustCompile(`^\s*[{[]`)
	valueStart    = regexp.MustCompile("^(?:[ -]*[^\\s:\"'#]+:\\s+|\\s*-\\s+)(?:\\[(?:[^\\]\"']*,)?\\s*)?([@`%*])")
	braceInText   = regexp.MustCompile(`[\[,]\s*(\{[^{}:]*\}[^\s,\]}{])`)
)

// conflictMarkers finds a merge conflict that nobody resolved.
func conflictMarkers(data []byte) *explanation {
	start := 0
	for i, line := range strings.Split(string(data), "\n") {
		switch {
		case start == 0 && conflictStart.MatchString(line):
			start = i + 1
		case start > 0 && conflictEnd.MatchString(line):
			return &explanation{pos{start, 1},
				fmt.Sprintf("a merge conflict is not resolved: keep one side of lines %d to %d, and remove the lines that begin with "+
					"<<<<<<<, ======= and >>>>>>>", start, i+1)}
		}
	}
	return nil
}

// mark finds a single mark of a merge conflict; conflictMarkers finds a whole one.
func (b broken) mark() *explanation {
	for i := range b.lines {
		if conflictMark.MatchString(b.lines[i]) {
			return b.on(i, "is a leftover mark of a merge conflict: remove the line, and keep one of the two versions")
		}
	}
	return nil
}

// fence finds the marks of a block of code in Markdown.
func (b broken) fence() *explanation {
	for i, line := range b.lines[:b.at+1] {
		if strings.HasPrefix(line, "```") {
			return b.on(i, "is a mark of Markdown: remove each line that begins with ```")
		}
	}
	return nil
}

// blank finds a character in the indentation that only looks like a space.
func (b broken) blank() *explanation {
	for _, i := range []int{b.at, b.above(b.at)} {
		if i < 0 {
			continue
		}
		line := b.lines[i]
		after := strings.TrimLeft(line, " ")
		if c, _ := utf8.DecodeRuneInString(after); isUnusualBlank(c) {
			return &explanation{pos{i + 1, indentOf(line) + 1},
				fmt.Sprintf("the character before the key is U+%04X, which only looks like a space: write a space", c)}
		}
	}
	return nil
}

// isUnusualBlank reports whether a character looks like a space that YAML does not know.
func isUnusualBlank(c rune) bool { return c > unicode.MaxASCII && unicode.IsSpace(c) }

// firstLine finds a first key that is indented, above others that are not.
func (b broken) firstLine() *explanation {
	first := b.above(len(b.lines))
	for i := first; i >= 0; i = b.above(i) {
		first = i
	}
	if first < 0 || indentOf(b.lines[first]) == 0 || !keyAndValue.MatchString(b.lines[first]) || indentOf(b.lines[b.at]) > 0 {
		return nil
	}
	return b.on(first, "belongs at the start of a line, as the keys below it: remove the spaces before it")
}

// item finds a key at the depth of the dash above it, to whose item it belongs, and a dash without a space behind it.
func (b broken) item() *explanation {
	above := b.above(b.at)
	if above < 0 {
		return nil
	}
	for _, i := range []int{above, b.at} {
		if dashNoSpace.MatchString(b.lines[i]) {
			return b.on(i, "a space is missing behind the dash")
		}
	}
	dashed := strings.HasPrefix(strings.TrimSpace(b.lines[above]), "- ")
	if dashed && indentOf(b.lines[b.at]) == indentOf(b.lines[above]) && keyFirst.MatchString(b.lines[b.at]) {
		return b.on(b.at, "is at the depth of the dash of line %d: indent it deeper, if it belongs to that item, or less", above+1)
	}
	if strings.HasPrefix(strings.TrimSpace(b.lines[b.at]), "- ") && indentOf(b.lines[b.at]) == indentOf(b.lines[above]) &&
		keyFirst.MatchString(b.lines[above]) {
		return b.on(b.at, "is a dash at the depth of the key of line %d: align it with the other dashes of its list", above+1)
	}
	return nil
}

// explain describes the error. It always has an answer.
func (b broken) explain() explanation {
	for _, rule := range []func() *explanation{b.mark, b.fence, b.blank, b.firstLine, b.ended, b.template, b.quotes, b.start, b.escape,
		b.brackets, b.dash, b.item, b.noColon, b.twoColons, b.indented} {
		if e := rule(); e != nil {
			before := b.lines[e.line-1][:e.column-1]
			e.column = utf8.RuneCountInString(before) + 1
			return *e
		}
	}
	return *b.on(b.at, "no valid YAML from here on: check the colons, quotes, brackets and the indentation of this line and the one above")
}

func (b broken) on(line int, format string, args ...any) *explanation {
	return &explanation{pos{line + 1, indentOf(b.lines[line]) + 1}, fmt.Sprintf(format, args...)}
}

func indentOf(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

// above is the last line above i that says something, or -1.
func (b broken) above(i int) int {
	for i--; i >= 0; i-- {
		if text := strings.TrimSpace(b.lines[i]); text != "" && text[0] != '#' {
			return i
		}
	}
	return -1
}

const noTemplates = "looks like a template, and Berth fills in none: write the value itself"

// ended finds text behind the end of a document.
func (b broken) ended() *explanation {
	above := b.above(b.at)
	switch {
	case strings.TrimSpace(b.lines[b.at]) == "...":
		return b.on(b.at, "ends a document that there is not: declare one, or remove the file")
	case above >= 0 && strings.TrimSpace(b.lines[above]) == "...", strings.Contains(b.cause, "<document start>"):
		return b.on(b.at, "text follows the end of the document: a file holds one, remove what is too much")
	}
	return nil
}

func (b broken) template() *explanation {
	for _, i := range []int{b.at, b.above(b.at)} {
		if i >= 0 && template.MatchString(b.lines[i]) {
			return b.on(i, noTemplates)
		}
	}
	return nil
}

// quotes finds a quote that is not closed, and text behind one that is.
func (b broken) quotes() *explanation {
	for _, i := range []int{b.at, b.above(b.at)} {
		if i < 0 {
			continue
		}
		line := b.lines[i]
		m := quotedKey.FindStringSubmatchIndex(line)
		if m == nil {
			continue
		}
		quote, rest := line[m[2]:m[3]], line[m[3]:]
		if quote == `"` {
			rest = strings.ReplaceAll(rest, `\"`, "  ")
		} else {
			rest = strings.ReplaceAll(rest, "''", "  ")
		}
		end := strings.Index(rest, quote)
		if end < 0 {
			return &explanation{pos{i + 1, m[2] + 1}, fmt.Sprintf("the quote that opens here is not closed: end the text with %s", quote)}
		}
		if after := strings.TrimSpace(rest[end+1:]); after != "" && after[0] != '#' && after[0] != ',' && after[0] != ']' &&
			after[0] != '}' {
			return &explanation{pos{i + 1, m[3] + end + 2}, "text follows the closing quote: put all of the value in quotes, or none of it"}
		}
	}
	return nil
}

func (b broken) start() *explanation {
	if m := braceInText.FindStringSubmatchIndex(b.lines[b.at]); m != nil {
		return &explanation{pos{b.at + 1, m[2] + 1}, "text that begins with a brace reads as a mapping: put it in quotes"}
	}
	if m := valueStart.FindStringSubmatchIndex(b.lines[b.at]); m != nil {
		return &explanation{pos{b.at + 1, m[2] + 1},
			fmt.Sprintf("a value cannot start with %s: put it in quotes", b.lines[b.at][m[2]:m[3]])}
	}
	return nil
}

func (b broken) escape() *explanation {
	if !strings.Contains(b.cause, "escape") {
		return nil
	}
	return b.on(b.at, `a backslash in double quotes begins an escape, such as \n: use single quotes, or write \\`)
}

func (b broken) brackets() *explanation {
	inside := strings.Contains(b.cause, "',' or") || strings.Contains(b.cause, "node content") || strings.Contains(b.cause, "end of stream")
	for i := b.at; i >= 0 && inside; i-- {
		if at := strings.LastIndexAny(b.lines[i], "[{"); at >= 0 {
			opening := b.lines[i][at : at+1]
			closing := map[string]string{"[": "]", "{": "}"}[opening]
			return &explanation{pos{i + 1, at + 1},
				fmt.Sprintf("what opens here with %s is not closed, or a comma is missing in it: separate items by commas, and end with %s",
					opening, closing)}
		}
	}
	return nil
}

func (b broken) dash() *explanation {
	if !strings.Contains(b.cause, "block sequence entries") {
		return nil
	}
	return b.on(b.at, "a list cannot begin behind a key: put each item, with its dash, on a line of its own below it")
}

// noColon finds a line without a colon, or without the space behind it, here or
// above.
func (b broken) noColon() *explanation {
	for _, i := range []int{b.above(b.at), b.at} {
		if i < 0 {
			continue
		}
		text := strings.TrimSpace(b.lines[i])
		switch {
		case colonFirst.MatchString(b.lines[i]):
			return b.on(i, "a key is missing in front of the colon")
		case colonBlank.MatchString(b.lines[i]):
			blank, _ := utf8.DecodeRuneInString(colonBlank.FindStringSubmatch(b.lines[i])[1])
			return b.on(i, "the character behind the colon is U+%04X, which only looks like a space: write a space", blank)
		case colonNoSpace.MatchString(b.lines[i]) && !strings.Contains(text, ": "):
			return b.on(i, "a space is missing behind the colon: write key: value")
		case bareWord.MatchString(text):
			return b.on(i, "a colon is missing: write key: value, or key: with the lines below it indented")
		}
	}
	return nil
}

// twoColons finds a colon in text.
func (b broken) twoColons() *explanation {
	line := b.lines[b.at]
	first := strings.Index(line, ": ")
	if first < 0 || flowStart.MatchString(line[first+2:]) || flowStart.MatchString(strings.TrimLeft(line, " -")) {
		return nil // colons in braces separate keys from values
	}
	if keyAndValue.MatchString(line) && strings.Contains(line[first+2:], ": ") {
		return b.on(b.at, "the text holds a colon and a space, which separate a key from its value: put the text in quotes")
	}
	return nil
}

// indented finds a line that stands deeper than one that has a value, or at no other
// line's depth.
func (b broken) indented() *explanation {
	above := b.above(b.at)
	if above < 0 {
		return nil
	}
	here, there := indentOf(b.lines[b.at]), indentOf(b.lines[above])
	switch {
	case here > there && keyAndValue.MatchString(b.lines[above]):
		return b.on(b.at, "is indented deeper than line %d, which already has a value: give both the same indentation, remove that "+
			"value, or restore the missing key or dash above this line", above+1)
	case here != there:
		return b.on(b.at, "no line above has this indentation: give lines that belong together the same indentation, or restore the "+
			"missing line above")
	}
	return nil
}
