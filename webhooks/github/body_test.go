package github

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth/reconciler"
)

const mark = "<!-- berth:lab:v2 -->"

func TestSectionsAreReadBack(t *testing.T) {
	t.Parallel()
	both := sections{rollout: "up", proposal: "### Plan\n\n| a |\n|---|\n| b |"}
	require.Equal(t, both, parse(both.body(mark)))
	require.Equal(t, sections{proposal: "p"}, parse(sections{proposal: "p"}.body(mark)))
	require.Equal(t, sections{rollout: "r"}, parse(sections{rollout: "r"}.body(mark)))
	require.Equal(t, sections{}, parse("an edited body"))
	require.Equal(t, sections{}, parse(proposalBegin+"\nno end"))
	require.Equal(t, both, parse(tidy(strings.ReplaceAll(both.body(mark), "\n", "\r\n")+"\n")), "as GitHub may hand it back")

	// A part cannot forge another one.
	forged := sections{proposal: "x\n" + proposalEnd + "\n" + rolloutBegin + "\nall fine\n" + rolloutEnd}
	require.Empty(t, parse(forged.body(mark)).rollout)
	require.Equal(t, 1, strings.Count(forged.body(mark), proposalEnd))
}

// For any parts, the body is within its bound, begins with the marker, and is the
// same after it is read and rendered again.
func TestBodyFitsAndIsStable(t *testing.T) {
	t.Parallel()
	line := rapid.SampledFrom([]string{
		"", "text ä€𝄞", "```", "````", "```go", "<details><summary>x</summary>", "</details>",
		"`<details>` is a tag, and so is `</details>`", "see <details>", "| a | b |", "- item", "<!-- x -->", "  ```", "`a`",
		strings.Repeat("long ", 300),
	})
	text := rapid.Custom(func(t *rapid.T) string {
		s := strings.Join(rapid.SliceOfN(line, 0, 30).Draw(t, "lines"), "\n")
		return strings.Repeat(s+"\n", rapid.IntRange(1, 30).Draw(t, "times"))
	})
	rapid.Check(t, func(t *rapid.T) {
		s := sections{rollout: text.Draw(t, "rollout"), proposal: text.Draw(t, "proposal")}
		for i := range rapid.IntRange(0, 12).Draw(t, "answers") {
			s.add(reconciler.Answer{Command: int64(rapid.IntRange(1, 20).Draw(t, "id")), Line: line.Draw(t, "line"),
				Details: strings.Repeat(text.Draw(t, "details"), i%2)})
		}
		body := s.body(mark)
		require.LessOrEqual(t, len(body), maxBody)
		require.True(t, utf8.ValidString(body))
		require.True(t, strings.HasPrefix(body, mark))
		require.Equal(t, tidy(body), body)
		require.Equal(t, body, parse(body).body(mark))

		n := rapid.IntRange(200, 2000).Draw(t, "n")
		short := cutMarkdown(s.proposal, n)
		if len(s.proposal) <= n {
			require.Equal(t, s.proposal, short)
			return
		}
		require.Contains(t, short, "more lines do not fit")
		if n > 2*maxFoot {
			require.LessOrEqual(t, len(short), n)
		}
		require.Empty(t, leftOpen(short), "in %q", short)
	})
}

// leftOpen lists the blocks that a text opens at the beginning of lines and does not close, by the
// rules of CommonMark.
func leftOpen(s string) (stack []string) {
	fence := regexp.MustCompile("^ {0,3}(`{3,})([^`]*)$")
	for line := range strings.SplitSeq(s, "\n") {
		top := ""
		if len(stack) > 0 {
			top = stack[len(stack)-1]
		}
		ticks := fence.FindStringSubmatch(line)
		switch {
		case strings.HasPrefix(top, "`"):
			if ticks != nil && len(ticks[1]) >= len(top) && strings.TrimSpace(ticks[2]) == "" {
				stack = stack[:len(stack)-1]
			}
		case ticks != nil:
			stack = append(stack, ticks[1])
		case strings.HasPrefix(line, "<details>"):
			stack = append(stack, "details")
		case line == "</details>" && top == "details":
			stack = stack[:len(stack)-1]
		}
	}
	return stack
}

// As the roll-out beside a plan grows, the plan is shortened several times.
func TestRepeatedCutsKeepFootAndCount(t *testing.T) {
	t.Parallel()
	const foot = "<sub>Plan `sha256:1234`</sub><br><sub>Say in a comment: `/berth plan`</sub>"
	said := regexp.MustCompile(`(?m)^\*\*(?:At least )?(\d+) more lines do not fit[^*]*\*\*(.*)$`)
	count := func(body string) int { return strings.Count(body, "content ") }
	rapid.Check(t, func(t *rapid.T) {
		var text strings.Builder
		for i := range rapid.IntRange(300, 700).Draw(t, "units") {
			fmt.Fprintf(&text, "<details><summary>content %d: `<details>`</summary>\n\n```diff\n- content ä€𝄞 %s\n+ "+
				"content\n```\n\n</details>\n\n", i, strings.Repeat("x", i%40))
		}
		full := strings.TrimSpace(text.String())
		before := rapid.IntRange(0, 1).Draw(t, "cut before")
		s := sections{proposal: full + "\n\n" + foot}
		if before == 1 { // as the renderer has it
			kept := strings.Join(strings.SplitAfter(full, "</details>\n\n")[:250], "")
			s.proposal = fmt.Sprintf("%s\n**%d more lines do not fit into this comment.** All of it: `berth plan --base 1 --head 2`\n\n%s",
				kept, strings.Count(full, "\n")-strings.Count(kept, "\n"), foot)
		}
		for _, lines := range rapid.SliceOfN(rapid.IntRange(0, 500), 1, 6).Draw(t, "roll-out") {
			s.rollout = strings.TrimSpace(strings.Repeat("roll-out roll-out roll-out 123\n", lines))
			s.details = []string{strings.TrimSpace(strings.Repeat("an answer\n", lines))}
			if s.details[0] == "" {
				s.details = nil
			}
			body := s.body(mark)
			require.LessOrEqual(t, len(body), maxBody)
			require.Empty(t, leftOpen(body))
			now := parse(body)
			require.Equal(t, s.rollout, now.rollout)
			require.Equal(t, s.details, now.details)
			require.True(t, strings.HasSuffix(now.proposal, foot))
			notes := said.FindAllStringSubmatch(body, -1)
			require.LessOrEqual(t, len(notes), 1)
			missing := count(full) - count(now.proposal)
			if len(notes) == 0 {
				require.Zero(t, missing)
			} else {
				n, err := strconv.Atoi(notes[0][1])
				require.NoError(t, err)
				require.GreaterOrEqual(t, n, missing, "all that says something")
				require.LessOrEqual(t, n, strings.Count(full, "\n")+1-strings.Count(now.proposal, "content "), "and no more than there is")
				require.Equal(t, before == 1, strings.Contains(notes[0][2], "--head 2"), "the way to all of it")
			}
			s = now
		}
	})
}

// Ids older than the oldest kept id count as answered.
func TestAnsweredIDsAreBounded(t *testing.T) {
	t.Parallel()
	var s sections
	for id := range int64(1000) {
		s.add(reconciler.Answer{Command: id + 1, Line: "done"})
		s = parse(s.body(mark))
	}
	require.Len(t, s.answered, maxAnsweredIDs)
	require.Len(t, s.lines, maxAnswerLines)
	require.True(t, s.has(1))
	require.True(t, s.has(1000))
	require.False(t, s.has(1001))
	s.add(reconciler.Answer{Command: 1, Line: "again"})
	require.NotContains(t, s.lines, "again")
}

func TestCutKeepsWholeCharacters(t *testing.T) {
	t.Parallel()
	require.Equal(t, "abc", cut("abc", 3))
	require.Equal(t, "a…", cut("aääää", 5))
	require.Equal(t, "…", cut("äöü", 4))
}

func TestPlainRemovesHidingCharacters(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a b c", plain("a\nb\x00 \u202ec\u200b"))
}

func TestCacheStaysInBudget(t *testing.T) {
	t.Parallel()
	c := newCache(100)
	for _, key := range []string{"a", "b", "c", "d", "e", "f", "a"} {
		c.keep(key, okWithETag(), make([]byte, 25))
		require.LessOrEqual(t, c.size, 100)
		require.Len(t, c.byURL, c.recent.Len())
	}
	require.Len(t, c.byURL, 4)
	require.NotContains(t, c.byURL, "c", "unused for longest")
	c.keep("big", okWithETag(), make([]byte, 26))
	require.NotContains(t, c.byURL, "big")
	c.keep("", okWithETag(), nil)
	require.Len(t, c.byURL, 4)
}

func TestFullLastPageIsNotCached(t *testing.T) {
	t.Parallel()
	next := http.Header{"Link": {`<https://forge/x?page=1>; rel="prev", <https://forge/x?page=3>; rel="next"`}}
	for _, c := range []struct {
		query, body string
		header      http.Header
		grows       bool
	}{
		{"per_page=2&page=2", "[1,2]", http.Header{}, true},
		{"per_page=2&page=2", "[1,2]", next, false},
		{"per_page=2", "[1]", http.Header{}, false},
		{"per_page=2", `{"total_count":2,"check_runs":[1,2]}`, http.Header{}, false},
		{"", "[1,2]", http.Header{}, false},
	} {
		require.Equal(t, c.grows, grows(&url.URL{RawQuery: c.query}, c.header, []byte(c.body)), c)
	}
}

func okWithETag() *http.Response {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Etag": {`"x"`}}}
}

func TestPullNumberIsReadFromIssueURL(t *testing.T) {
	t.Parallel()
	for issue, want := range map[string]int{
		"https://api.github.com/repos/lab/estate/issues/7":  7,
		"https://ghe.lab/api/v3/repos/lab/estate/issues/12": 12,
		"https://api.github.com/repos/Lab/Estate/issues/7":  7,
		"https://api.github.com/repos/lab/other/issues/7":   0,
		"https://api.github.com/repos/lab/estate/pulls/7":   0,
		"https://api.github.com/repos/lab/estate/issues/-7": 0,
		"https://api.github.com/repos/lab/estate/issues/":   0,
		"https://api.github.com/repos/lab/estate/issues/7x": 0,
		"":  0,
		"7": 0,
	} {
		require.Equal(t, want, issueNumber(issue, "lab", "estate"), issue)
	}
}

func TestPageIsTheRepositorysWebPage(t *testing.T) {
	t.Parallel()
	for api, want := range map[string]string{
		"https://api.github.com/":     "https://github.com/lab/estate",
		"https://api.octo.ghe.com/":   "https://octo.ghe.com/lab/estate",
		"https://ghe.lab/api/v3/":     "https://ghe.lab/lab/estate",
		"https://ghe.lab/sub/api/v3/": "https://ghe.lab/sub/lab/estate",
		"http://127.0.0.1:3000/":      "http://127.0.0.1:3000/lab/estate",
		"https://api.ghe.lab/api/v3/": "https://api.ghe.lab/lab/estate",
	} {
		f, err := New(Options{BaseURL: api, Owner: "lab", Repo: "estate", Token: func(context.Context) (string, error) { return "t", nil },
			Log: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		require.Equal(t, want, f.page())
	}
}
