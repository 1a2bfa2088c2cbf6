package agent

import (
	"bufio"
	"bytes"
	"regexp"
	"strings"

	"berth/runtimes"
)

// Bounds of quotes from a log.
const (
	logRead  = 16 << 10 // bytes at its end
	logQuote = 200      // characters of a line
)

// logTime is the time at the begin of a line.
const logTime = `^\[?\d{4}-\d{2}-\d{2}[T ]+[\d:.]+\]?( [-+]\d{4})?\s*`

// timed matches the time of a line. fatalLine matches a line with the reason why a daemon ended, at its begin: the text of
// a user may follow elsewhere.
var (
	timed     = regexp.MustCompile(logTime)
	fatalLine = regexp.MustCompile(`^(` + logTime[1:] + `)?(\w+: )?(fatal:|\d+ \[ERROR\]|Error: )`)
)

// whyEnded returns the last line of a daemon's log that says why it ended; empty: none since its last start.
func whyEnded(spec runtimes.ServiceSpec) string {
	if spec.LogFile == "" {
		return ""
	}
	f, err := openPlain(spec.LogFile)
	if err != nil {
		return ""
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return ""
	}
	b := make([]byte, min(st.Size(), logRead))
	n, _ := f.ReadAt(b, st.Size()-int64(len(b)))
	why := ""
	for lines := bufio.NewScanner(bytes.NewReader(b[:n])); lines.Scan(); {
		line := lines.Text()
		switch {
		case spec.Started != "" && strings.Contains(line, spec.Started):
			why = ""
		case fatalLine.MatchString(line):
			why = line
		}
	}
	return quote(why)
}

// quote returns a line without its time, with a bound and without control characters.
func quote(line string) string {
	line = timed.ReplaceAllString(strings.ReplaceAll(bounded([]byte(line)), "\n", " "), "")
	if runes := []rune(line); len(runes) > logQuote {
		return string(runes[:logQuote]) + "…"
	}
	return line
}
