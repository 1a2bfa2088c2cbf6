package jobs

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"berth/schema/queue"
)

// waitOption is the option --wait of sbatch(1), also as -W in a group of options without a value.
var waitOption = regexp.MustCompile(`^(--wait|-[hHIkOQsvV]*W.*)$`)

// directives are the words of the options in a script, in their order.
type directives []directiveWord

type directiveWord struct {
	text string
	line int
}

// directivesOf returns the options that sbatch reads in a script: those above the first command.
func directivesOf(script string) (all directives) {
	n := 0
	for line := range strings.Lines(script) {
		n++
		options, isDirective := directive(line)
		if !isDirective {
			if text := strings.TrimSpace(line); text != "" && text[0] != '#' {
				return all
			}
			continue
		}
		for _, text := range words(options) {
			all = append(all, directiveWord{text, n})
		}
	}
	return all
}

// firstPart returns the options of the first part of a heterogeneous job, for which those of the command are as well.
func (d directives) firstPart() directives {
	if i := slices.IndexFunc(d, func(w directiveWord) bool { return w.text == "hetjob" || w.text == "packjob" }); i >= 0 {
		return d[:i]
	}
	return d
}

// get returns the last value of an option, which may be named by the begin of its long name, and its line. Line 0: it is not there.
func (d directives) get(long string, short byte) (value string, line int) {
	for i, w := range d {
		name, text, hasValue := strings.Cut(strings.TrimPrefix(w.text, "--"), "=")
		switch isLong := strings.HasPrefix(w.text, "--"); {
		case isLong && name != "" && strings.HasPrefix(long, name):
		case !isLong && short != 0 && strings.HasPrefix(w.text, "-"):
			// Options without a value may stand before it in the same word.
			flags, after, isThere := strings.Cut(w.text[1:], string(short))
			if !isThere || strings.Trim(flags, "hHIkOQsvV") != "" {
				continue
			}
			text, hasValue = after, after != ""
		default:
			continue
		}
		if !hasValue && i+1 < len(d) {
			text = d[i+1].text
		}
		value, line = text, w.line
	}
	return value, line
}

// check refuses a script whose options make sbatch wait until the job has ended: the call would keep one of the few
// places that a control host has for calls. gpus: the request has GPUs of its own, which sbatch would add to those of
// the script.
func (d directives) check(gpus bool) error {
	for _, w := range d {
		if waitOption.MatchString(w.text) {
			return fmt.Errorf("%w: line %d of the script has %s, with which sbatch waits until the job has ended: remove it; the job's state says when it has ended", queue.ErrDenied, w.line, w.text)
		}
	}
	if !gpus {
		return nil
	}
	for _, option := range []string{"gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task"} {
		short := byte(0)
		if option == "gpus" {
			short = 'G'
		}
		if _, line := d.get(option, short); line > 0 {
			return fmt.Errorf("%w: line %d of the script has --%s, and the request has gpus as well: keep one of them", queue.ErrDenied, line, option)
		}
	}
	return nil
}

// directive returns the options of a line for sbatch.
func directive(line string) (options string, ok bool) {
	if options, ok = strings.CutPrefix(line, "#SBATCH"); !ok {
		options, ok = strings.CutPrefix(line, "#SLURM")
	}
	return options, ok
}

// words splits options as sbatch does: quotes and backslashes are taken away, and # begins a
// comment.
func words(options string) (all []string) {
	var word strings.Builder
	quote, escaped, open := rune(0), false, false
	end := func() {
		if open {
			all = append(all, word.String())
		}
		word.Reset()
		open = false
	}
	for _, c := range strings.TrimRight(options, "\r\n") {
		switch {
		case escaped:
			escaped = false
		case c == '\\':
			escaped, open = true, true
			continue
		case c == quote:
			quote = 0
			continue
		case quote != 0:
		case c == '"' || c == '\'':
			quote, open = c, true
			continue
		case c == '#':
			end()
			return all
		case c == ' ' || c == '\t':
			end()
			continue
		}
		word.WriteRune(c)
		open = true
	}
	end()
	return all
}
