package report

import (
	"regexp"
	"strings"
	"unicode"
)

// joiner is the zero-width joiner: put into what a forge would turn into a
// mention, a link or a reference, it keeps it text and cannot be seen.
const joiner = "\u200d"

// However long a name is that something outside has, a line stays one.
const (
	maxCode  = 500
	maxProse = 1000
)

// clean keeps what of s people can see, on one line: no control characters, no
// terminal sequences, nothing that reverses or hides text.
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

// Things a forge makes active wherever they stand in text, found in the rendered
// document, so that neither a backslash nor an entity keeps them quiet.
var (
	mention   = regexp.MustCompile(`@`)
	reference = regexp.MustCompile(`#(\d)|(?i:\bGH-)(\d)`)
	scheme    = regexp.MustCompile(`:(//)`)
	www       = regexp.MustCompile(`(?i:www)(\.)`)
	mailto    = regexp.MustCompile(`(?i:\b(?:mailto|xmpp)):`)
	emoji     = regexp.MustCompile(`:([a-zA-Z0-9_+-]+:)`)
)

// markup is what Markdown and HTML give a meaning to, and how it is written so
// that it has none.
var markup = strings.NewReplacer(
	"&", "&amp;", "<", "&lt;", ">", "&gt;", "$", `\$`,
	`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "|", `\|`, "~", `\~`, "#", `\#`, "!", `\!`,
)

// prose is s as plain words within a line of Markdown, a table's cell included.
// It must not stand first on its line.
func prose(s string) string {
	s = clean(short(s, maxProse))
	s = markup.Replace(s)
	s = mention.ReplaceAllString(s, "@"+joiner)
	s = reference.ReplaceAllStringFunc(s, func(m string) string { return m[:len(m)-1] + joiner + m[len(m)-1:] })
	s = scheme.ReplaceAllString(s, ":"+joiner+"$1")
	s = www.ReplaceAllStringFunc(s, func(m string) string { return m[:3] + joiner + m[3:] })
	s = mailto.ReplaceAllStringFunc(s, func(m string) string { return m[:len(m)-1] + joiner + ":" })
	for emoji.MatchString(s) { // again where one ended and the next began with the same colon
		s = emoji.ReplaceAllString(s, ":"+joiner+"$1")
	}
	return s
}

// plainWord is a word of ours.
var plainWord = regexp.MustCompile(`^[a-z]+(?:[ _-][a-z]+)*$`)

// word is one of our own words, which may stand first on a line; anything else in
// its place is code.
func word(s string) string {
	if plainWord.MatchString(s) {
		return prose(s)
	}
	return code(s)
}

// code is s as a code span, in which nothing but the pipe of a table has a
// meaning. It serves in and out of tables: a pipe is shown as a look-alike, as
// the two would need it written differently.
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

// htmlCode is a name as code where Markdown is not read, within a summary. What
// no name of ours has is replaced.
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

// fence is lines as a block of code. The fence is longer than any within.
func fence(lang string, lines []string) []string {
	longest := 2
	out := []string{""}
	for _, l := range lines {
		l = hideComment(clean(l))
		longest = max(longest, longestRun(l, '`'))
		out = append(out, l)
	}
	ticks := strings.Repeat("`", longest+1)
	out[0] = ticks + lang
	return append(out, ticks)
}

// hideComment breaks the start of an HTML comment: whoever looks for a hidden
// marker in a comment of ours must find none but ours.
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

// short cuts s to n characters, and shows that it did.
func short(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}
