package report

import (
	"regexp"
	"strings"
	"unicode"
)

// joiner is the zero-width joiner. It is invisible and prevents a forge from making a
// mention, a link or a reference of the text around it.
const joiner = "\u200d"

// Limits of external text, in characters.
const (
	maxCode  = 500
	maxProse = 1000
)

// clean keeps the visible characters of s, on one line. It replaces control
// characters, terminal sequences and characters that reverse or hide text.
func clean(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n' || r == '\r' || r == '\t' || r == '\u2028' || r == '\u2029' || r == '\u00a0':
			b.WriteByte(' ')
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteRune('\ufffd')
		}
	}
	return b.String()
}

// Patterns that a forge makes active anywhere in text. The forge searches the rendered
// document, so neither a backslash nor an entity prevents that.
var (
	mention   = regexp.MustCompile(`@`)
	reference = regexp.MustCompile(`#(\d)|(?i:\bGH-)(\d)`)
	scheme    = regexp.MustCompile(`:(//)`)
	www       = regexp.MustCompile(`(?i:www)(\.)`)
	mailto    = regexp.MustCompile(`(?i:\b(?:mailto|xmpp)):`)
	emoji     = regexp.MustCompile(`:([a-zA-Z0-9_+-]+:)`)
)

// markup escapes the characters that have a meaning in Markdown or HTML.
var markup = strings.NewReplacer(
	"&", "&amp;", "<", "&lt;", ">", "&gt;", "$", `\$`,
	`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "|", `\|`, "~", `\~`, "#", `\#`, "!", `\!`,
)

// prose returns s as plain text within a line of Markdown or a table cell. It must not
// be the beginning of a line.
func prose(s string) string {
	s = clean(short(s, maxProse))
	s = markup.Replace(s)
	s = mention.ReplaceAllString(s, "@"+joiner)
	s = reference.ReplaceAllStringFunc(s, func(m string) string { return m[:len(m)-1] + joiner + m[len(m)-1:] })
	s = scheme.ReplaceAllString(s, ":"+joiner+"$1")
	s = www.ReplaceAllStringFunc(s, func(m string) string { return m[:3] + joiner + m[3:] })
	s = mailto.ReplaceAllStringFunc(s, func(m string) string { return m[:len(m)-1] + joiner + ":" })
	for emoji.MatchString(s) { // repeat, because two matches can share a colon
		s = emoji.ReplaceAllString(s, ":"+joiner+"$1")
	}
	return s
}

// plainWord matches Berth's own words.
var plainWord = regexp.MustCompile(`^[a-z]+(?:[ _-][a-z]+)*$`)

// word returns one of Berth's own words, which may begin a line. Any other text becomes
// code.
func word(s string) string {
	if plainWord.MatchString(s) {
		return prose(s)
	}
	return code(s)
}

// code returns s as a code span, for use inside and outside tables. A look-alike
// replaces a pipe, because a table needs it escaped and other text does not.
func code(s string) string {
	s = strings.TrimSpace(hideComment(strings.ReplaceAll(clean(short(s, maxCode)), "|", "¦")))
	if s == "" {
		return "–"
	}
	ticks := strings.Repeat("`", longestRun(s, '`')+1)
	if strings.HasPrefix(s, "`") || strings.HasSuffix(s, "`") {
		s = " " + s + " "
	}
	return ticks + s + ticks
}

// htmlCode returns a name as code within a summary, which a forge does not read as
// Markdown. It replaces all characters that names of Berth cannot have.
func htmlCode(s string) string {
	s = short(s, maxCode)
	s = strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("./-_ ", r) {
			return r
		}
		return '·'
	}, s)
	return "<code>" + s + "</code>"
}

// hideComment breaks the start of an HTML comment, so that the only hidden marker in
// a comment is the one that Berth adds.
func hideComment(s string) string { return strings.ReplaceAll(s, "<!--", "<!"+joiner+"--") }

func longestRun(s string, c byte) int {
	longest, run := 0, 0
	for i := range len(s) {
		if s[i] != c {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	return longest
}

// short cuts s to n characters and marks the cut.
func short(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}
