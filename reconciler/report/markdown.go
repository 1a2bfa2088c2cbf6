package report

import (
	"fmt"
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

// doc is a Markdown document in lines. Tables, fences and details open and close
// on lines of their own, so that the document can be cut between any two lines.
type doc struct{ lines []string }

func (d *doc) line(s ...string) { d.lines = append(d.lines, s...) }

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

func (d *doc) details(summary string, body func()) {
	d.line("<details><summary>"+summary+"</summary>", "")
	body()
	d.line("", "</details>", "")
}

// cut returns the document within max bytes, with its foot. It omits whole lines at the
// end and closes open blocks. An added line gives the number of omitted lines and the
// command that prints all of them.
func (d *doc) cut(max int, foot, command string) string {
	total := 0
	for _, l := range d.lines {
		total += len(l) + 1
	}
	if total+len(foot)+1 <= max {
		return strings.Join(append(d.lines, foot), "\n") + "\n"
	}
	note := fmt.Sprintf("**%d more lines do not fit into this comment.** All of it: %s", len(d.lines), code(command))
	size := len(foot) + len(note) + 4 // with the line breaks around them
	var kept []string
	var now open
	for i, l := range d.lines {
		next := now.after(l)
		if size+len(l)+1+next.closing() > max {
			if now.fence != "" {
				kept = append(kept, now.fence)
			}
			for range now.details {
				kept = append(kept, "", "</details>")
			}
			kept = append(kept, "", fmt.Sprintf("**%d more lines do not fit into this comment.** All of it: %s", len(d.lines)-i, code(command)), "")
			break
		}
		size += len(l) + 1
		kept = append(kept, l)
		now = next
	}
	return strings.Join(append(kept, foot), "\n") + "\n"
}

// open is the state of unclosed Markdown blocks.
type open struct {
	fence   string // its backticks
	details int
}

// after returns the state after one more line.
func (o open) after(line string) open {
	ticks := line[:len(line)-len(strings.TrimLeft(line, "`"))]
	switch {
	case o.fence != "" && line == o.fence:
		o.fence = ""
	case o.fence == "" && len(ticks) > 2 && !strings.Contains(line[len(ticks):], "`"):
		o.fence = ticks
	case o.fence == "" && strings.HasPrefix(line, "<details>"):
		o.details++
	case o.fence == "" && line == "</details>":
		o.details--
	}
	return o
}

// closing returns the number of bytes that close the open blocks.
func (o open) closing() int { return len(o.fence) + 1 + o.details*len("\n</details>\n") }
