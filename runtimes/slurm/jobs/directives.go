package jobs

import (
	"fmt"
	"regexp"
	"strings"

	"berth/schema/queue"
)

// waitOption is the option --wait of sbatch(1), also as -W in a group of options without a value.
var waitOption = regexp.MustCompile(`^(--wait|-[hHIkOQsvV]*W.*)$`)

// checkDirectives refuses a script whose options make sbatch wait until the job has ended: the
// call would keep one of the few places that a control host has for calls.
func checkDirectives(script string) error {
	n := 0
	for line := range strings.Lines(script) {
		n++
		options, isDirective := directive(line)
		if !isDirective {
			if text := strings.TrimSpace(line); text != "" && text[0] != '#' {
				return nil // sbatch reads no options below the first command
			}
			continue
		}
		for _, option := range words(options) {
			if waitOption.MatchString(option) {
				return fmt.Errorf("%w: line %d of the script has %s, with which sbatch waits until the job has ended: remove it; the job's state says when it has ended", queue.ErrDenied, n, option)
			}
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
