package schema

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

// UnsafeRune reports whether c is a control or format character, a line separator, or another
// invisible character (Unicode's Default_Ignorable_Code_Point). People cannot see these, and
// programs read them differently (CVE-2021-42574). No text of a document or a request has one.
func UnsafeRune(c rune) bool {
	if c < utf8.RuneSelf {
		return c < ' ' || c == 0x7f
	}
	if c == 0xfe0e || c == 0xfe0f { // selects the style of an emoji; keyboards insert it
		return false
	}
	return unicode.In(c, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Other_Default_Ignorable_Code_Point,
		unicode.Variation_Selector) ||
		c == 0xfffe || c == 0xffff || c == 0x2800 // the Braille pattern without dots looks like a space
}

// MaxMarks is how many combining marks may follow each other. Scripts of names have only a few on
// a letter; many marks cover the lines around them.
const MaxMarks = 8

// Marks counts consecutive combining marks.
type Marks int

// Add takes the next character, and reports whether it is one mark too many.
func (m *Marks) Add(c rune) bool {
	if c < utf8.RuneSelf || !unicode.Is(unicode.M, c) {
		*m = 0
		return false
	}
	*m++
	return *m > MaxMarks
}

// UnsafeText describes the first forbidden character of text, for the end of a sentence such as
// "the reason holds …"; empty: the text is allowed. lines: a newline is allowed too.
func UnsafeText(text string, lines bool) string {
	var marks Marks
	for _, c := range text {
		switch {
		case marks.Add(c):
			return fmt.Sprintf("more than %d combining marks in a row, which cover what stands around them: remove them", MaxMarks)
		case UnsafeRune(c) && !(lines && c == '\n'):
			return fmt.Sprintf("the character U+%04X, which is invisible or changes how text is read: remove it", c)
		}
	}
	return ""
}
