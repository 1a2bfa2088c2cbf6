package cli

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode"
)

// Visible replaces what could control a terminal or begin another line.
func Visible(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '�'
	}, s)
}

// VisibleLines is Visible for text of several lines.
func VisibleLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = Visible(strings.ReplaceAll(line, "\t", "  "))
	}
	return strings.Join(lines, "\n")
}

// OrDash shows an empty text as a dash.
func OrDash(s string) string { return cmp.Or(Visible(s), "-") }

// Stamp is a time as the text forms show it.
func Stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// ShortCommit is a commit id as the text forms show it.
func ShortCommit(commit string) string { return commit[:min(12, len(commit))] }

// Count is a number with its noun, in the plural unless it is one.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Join puts the texts that are not empty into one line.
func Join(texts ...string) string {
	var out []string
	for _, s := range texts {
		if s != "" {
			out = append(out, s)
		}
	}
	return strings.Join(out, "; ")
}
