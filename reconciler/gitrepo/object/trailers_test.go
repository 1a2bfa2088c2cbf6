package object

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// gitTrailers returns the trailers that git parses, one "key: value" a line.
func gitTrailers(t require.TestingT, message string) string {
	c := exec.Command("git", "interpret-trailers", "--parse", "--no-divider")
	c.Env = []string{"PATH=/usr/bin:/bin:/usr/local/bin", "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"LC_ALL=C"}
	c.Stdin = strings.NewReader(message)
	out, err := c.Output()
	require.NoError(t, err)
	return string(out)
}

func ourTrailers(message string) string {
	var b strings.Builder
	for _, t := range messageTrailers(message) {
		b.WriteString(t.Key + ": " + t.Value + "\n")
	}
	return b.String()
}

func TestTrailersMatchGit(t *testing.T) {
	for name, c := range map[string]struct{ message, want string }{
		"none":                     {"Subject\n", ""},
		"in the title":             {"Break-Glass: yes\n", ""},
		"one":                      {"Subject\n\nBreak-Glass: the cluster burns\n", "Break-Glass: the cluster burns\n"},
		"without a line break":     {"Subject\n\nBreak-Glass: x", "Break-Glass: x\n"},
		"not in the middle":        {"Subject\n\nBreak-Glass: x\n\nMore text.\n", ""},
		"not in prose":             {"Subject\n\nThis is not\nBreak-Glass: x\n", ""},
		"in prose with a sign-off": {"Subject\n\nsome text\nSigned-off-by: A\nBreak-Glass: x\n", "Signed-off-by: A\nBreak-Glass: x\n"},
		"two of a key":             {"S\n\nBerth-Ack-Delete: a\nBerth-Ack-Delete: b\n", "Berth-Ack-Delete: a\nBerth-Ack-Delete: b\n"},
		"folded":                   {"S\n\nBreak-Glass: one\n  two\n\tthree\nX: y\n", "Break-Glass: one two three\nX: y\n"},
		"blanks":                   {"S\n\nBreak-Glass \t:   x  \n", "Break-Glass: x\n"},
		"crlf":                     {"S\r\n\r\nBreak-Glass: x\r\n", "Break-Glass: x\n"},
		"comments":                 {"S\n\nA: b\n# no\nC: d\n\n# end\n", "A: b\nC: d\n"},
		"scissors":                 {"S\n\nA: b\n# ------------------------ >8 ------------------------\nC: d\n", "A: b\n"},
		"conflicts":                {"S\n\nA: b\n\nConflicts:\n\tfile\n", "A: b\n"},
		"conflicts at the top":     {"Conflicts:\n \nA: b\n\n\tC: d", "A: b\n"},
		"below a divider":          {"S\n\n---\n\nA: b\n", "A: b\n"},
		"cherry-picked":            {"S\n\nA: b\n(cherry picked from commit 1)\n", "A: b\n"},
		"blank lines below":        {"S\n\nA: b\n\n \n", "A: b\n"},
		"other separators":         {"S\n\nA=b\nC#d\n", ""},
		"no key":                   {"S\n\n: b\n", ""},
		"NUL":                      {"S\n\nA: b\x00\n\nC: d\n", "A: b\n"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, ourTrailers(c.message))
			require.Equal(t, c.want, gitTrailers(t, c.message))
		})
	}
}

// For any message, Berth reads the same trailers as git.
func TestRandomTrailersMatchGit(t *testing.T) {
	line := rapid.SampledFrom([]string{
		"Subject", "text here", "Break-Glass: reason", "Berth-Ack-Delete:digest", "Signed-off-by: A <a@b>", "(cherry picked from commit x)",
		"", "", " ", "\t", " folded", "\tfolded: x", "# comment", "#: x", "Conflicts:", "\tpath", "a b: c", "ä: x", "-: x", "x:", ": x",
		"a  : b  ", "Key\r", "\r", "---",
		"# ------------------------ >8 ------------------------", "\x80: y", "y: \xff", "a\vb: c", "K: v\r",
	})
	rapid.Check(t, func(t *rapid.T) {
		message := strings.Join(rapid.SliceOfN(line, 0, 12).Draw(t, "lines"), "\n")
		if rapid.Bool().Draw(t, "final line break") {
			message += "\n"
		}
		require.Equal(t, gitTrailers(t, message), ourTrailers(message), "%q", message)
	})
}

func FuzzTrailers(f *testing.F) {
	f.Add("S\n\nA: b\n c\n# d\n")
	f.Fuzz(func(t *testing.T, message string) {
		for _, tr := range messageTrailers(message) {
			if tr.Key == "" || strings.ContainsAny(tr.Key+tr.Value, "\n\x00") {
				t.Errorf("%q gives %q: %q", message, tr.Key, tr.Value)
			}
		}
	})
}
