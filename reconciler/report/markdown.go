package report

import (
	"fmt"
	"slices"
	"strings"
)

// MaxMarkdown limits any Markdown of this package, in bytes. Forges accept 65,536
// characters; the sender may add a line.
const MaxMarkdown = 60000

// maxPart limits a roll-out or an answer, in bytes, because both share the comment with
// the plan.
const maxPart = 16000

// maxValue limits the displayed characters of one value.
const maxValue = 300

// doc is a Markdown document in lines. It can be cut after any of them.
type doc struct {
	lines   []docLine
	fence   string // backticks that close the open code block; "": none is open
	details int    // open details blocks
}

type docLine struct {
	text  string
	close string // closes the blocks that are open after the line
}

func (d *doc) line(texts ...string) {
	end := strings.Repeat("\n</details>\n", d.details)
	if d.fence != "" {
		end = d.fence + "\n" + end
	}
	for _, text := range texts {
		d.lines = append(d.lines, docLine{text, end})
	}
}

func (d *doc) table(heads ...string) {
	d.line("| "+strings.Join(heads, " | ")+" |", "|"+strings.Repeat(" --- |", len(heads)))
}

func (d *doc) row(cells ...string) { d.line("| " + strings.Join(cells, " | ") + " |") }

// box writes an alert of GitHub's Markdown, such as NOTE or CAUTION.
func (d *doc) box(kind string, lines ...string) {
	d.line("> [!" + kind + "]")
	for _, l := range lines {
		d.line(strings.TrimRight("> "+l, " "))
	}
	d.line("")
}

// section folds what body writes.
func (d *doc) section(summary string, body func()) {
	d.details++
	d.line("<details><summary>"+summary+"</summary>", "")
	body()
	d.line("")
	d.details--
	d.line("</details>", "")
}

// diff writes lines as a code block. Its fence is longer than any run of backticks in
// them.
func (d *doc) diff(lines []string) {
	longest := 2
	for i, l := range lines {
		lines[i] = hideComment(clean(l))
		longest = max(longest, longestRun(lines[i], '`'))
	}
	d.fence = strings.Repeat("`", longest+1)
	d.line(d.fence + "diff")
	d.line(lines...)
	end := d.fence
	d.fence = ""
	d.line(end)
}

// cut returns the document within max bytes, with its foot. It omits whole lines at the
// end and closes open blocks. An added line gives the number of omitted lines and the
// command that prints all of them.
func (d *doc) cut(max int, foot, command string) string {
	more := func(n int) string {
		return fmt.Sprintf("**%d more lines do not fit into this comment.** All of it: %s", n, code(command))
	}
	kept, size := len(d.lines), len(foot)+1
	for _, l := range d.lines {
		size += len(l.text) + 1
	}
	if size > max {
		size = len(foot) + len(more(len(d.lines))) + 4 // with the line breaks around them
		kept = slices.IndexFunc(d.lines, func(l docLine) bool {
			size += len(l.text) + 1
			return size+len(l.close) > max
		})
	}
	var b strings.Builder
	for _, l := range d.lines[:kept] {
		b.WriteString(l.text + "\n")
	}
	if kept > 0 && kept < len(d.lines) {
		b.WriteString(d.lines[kept-1].close)
	}
	if kept < len(d.lines) {
		b.WriteString("\n" + more(len(d.lines)-kept) + "\n\n")
	}
	return b.String() + foot + "\n"
}

func bold(s string) string { return "**" + s + "**" }
