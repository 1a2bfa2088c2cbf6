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
			options = otherBatch(line)
		}
		for _, text := range words(options) {
			all = append(all, directiveWord{text, n})
		}
	}
	return all
}

// otherBatch returns the options in a line for PBS or LSF that sbatch reads as its own, of those that matter here.
func otherBatch(line string) string {
	for prefix, names := range map[string][]string{
		"#PBS":  {"-o", "--output", "-d", "--chdir", "-N", "--job-name"},
		"#BSUB": {"-o", "--output", "-cwd", "--chdir", "-J", "--job-name"},
	} {
		options, isIts := strings.CutPrefix(line, prefix)
		given := words(options)
		if !isIts || len(given) < 2 {
			continue
		}
		if i := slices.Index(names, given[0]); i >= 0 && i%2 == 0 {
			return fmt.Sprintf("%s=%q", names[i+1], given[1])
		}
	}
	return ""
}

// firstPart returns the options of the first part of a heterogeneous job. Options of the command are for that part only.
func (d directives) firstPart() directives {
	if i := slices.IndexFunc(d, func(w directiveWord) bool { return w.text == "hetjob" || w.text == "packjob" }); i >= 0 {
		return d[:i]
	}
	return d
}

// shorter are options whose names begin those of others, and abbreviate none.
var shorter = []string{"gpus", "mem"}

// get returns the last value of an option, and its line; 0: the option is not there. Its long name may be abbreviated.
func (d directives) get(long string, short byte) (value string, line int) {
	for i, w := range d {
		name, text, hasValue := strings.Cut(strings.TrimPrefix(w.text, "--"), "=")
		switch isLong := strings.HasPrefix(w.text, "--"); {
		case isLong && (name == long || name != "" && !slices.Contains(shorter, name) && strings.HasPrefix(long, name)):
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

// check refuses two kinds of scripts. With --wait, sbatch waits until the job has ended, and the call would keep one of the
// few places that a control host has for calls. An option that asks for what the request also asks for, by another name,
// is added to it by sbatch or refused.
func (d directives) check(r queue.Request) error {
	for _, w := range d {
		if waitOption.MatchString(w.text) {
			return fmt.Errorf("%w: line %d of the script has %s, with which sbatch waits until the job has ended: remove it; the job's "+
				"state says when it has ended", queue.ErrDenied, w.line, w.text)
		}
	}
	for _, o := range []struct {
		asked   bool
		request string
		option  string
		short   byte
	}{
		{r.GPUs > 0, "gpus", "gpus", 'G'}, {r.GPUs > 0, "gpus", "gpus-per-node", 0}, {r.GPUs > 0, "gpus", "gpus-per-socket", 0},
		{r.GPUs > 0, "gpus", "gpus-per-task", 0},
		{r.MemoryMiB > 0, "memory", "mem-per-cpu", 0}, {r.MemoryMiB > 0, "memory", "mem-per-gpu", 0},
	} {
		if _, line := d.get(o.option, o.short); o.asked && line > 0 {
			return fmt.Errorf("%w: line %d of the script has --%s, and the request has %s as well: keep one of them", queue.ErrDenied, line,
				o.option, o.request)
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
