package github

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestSections(t *testing.T) {
	t.Parallel()
	both := sections{rollout: "up", proposal: "### Plan\n\n| a |\n|---|\n| b |"}
	require.Equal(t, both, parse(both.String()))
	require.Equal(t, sections{proposal: "p"}, parse(sections{proposal: "p"}.String()))
	require.Equal(t, sections{rollout: "r"}, parse(sections{rollout: "r"}.String()))
	require.Equal(t, sections{}, parse("somebody edited it all away"))
	require.Equal(t, sections{}, parse(proposalBegin+"\nno end"))
	require.Equal(t, both, parse(tidy(strings.ReplaceAll(both.String(), "\n", "\r\n")+"\n")), "as GitHub may hand it back")

	// A part cannot forge another one.
	forged := sections{proposal: "x\n" + proposalEnd + "\n" + rolloutBegin + "\nall fine\n" + rolloutEnd}
	require.Empty(t, parse(forged.String()).rollout)
	require.Equal(t, 1, strings.Count(forged.String(), proposalEnd))
}

// TestBodyProperties: whatever the parts are, the body fits, says whose it is,
// and is the same when read back and put together again.
func TestBodyProperties(t *testing.T) {
	t.Parallel()
	line := rapid.SampledFrom([]string{
		"", "text ä€𝄞", "```", "````", "```go", "<details><summary>x</summary>", "</details>", "| a | b |", "- item", "<!-- x -->", "  ```", "`a`", strings.Repeat("long ", 300),
	})
	text := rapid.Custom(func(t *rapid.T) string {
		s := strings.Join(rapid.SliceOfN(line, 0, 30).Draw(t, "lines"), "\n")
		return strings.Repeat(s+"\n", rapid.IntRange(1, 30).Draw(t, "times"))
	})
	rapid.Check(t, func(t *rapid.T) {
		s := sections{rollout: text.Draw(t, "rollout"), proposal: text.Draw(t, "proposal")}
		body := s.String()
		require.LessOrEqual(t, len(body), maxBody)
		require.True(t, utf8.ValidString(body))
		require.True(t, strings.HasPrefix(body, marker))
		require.Equal(t, tidy(body), body)
		require.Equal(t, body, parse(body).String())

		n := rapid.IntRange(200, 2000).Draw(t, "n")
		short := cutMarkdown(s.proposal, n)
		require.LessOrEqual(t, len(short), max(n, 0))
		if len(s.proposal) <= n {
			require.Equal(t, s.proposal, short)
			return
		}
		fence, details := "", 0
		for l := range strings.Lines(short) {
			fence, details = state(l, fence, details)
		}
		require.Empty(t, fence, "a fence stays open in %q", short)
		require.Zero(t, details, "details stay open in %q", short)
		require.Contains(t, short, "more lines do not fit")
	})
}

func TestCut(t *testing.T) {
	t.Parallel()
	require.Equal(t, "abc", cut("abc", 3))
	require.Equal(t, "a…", cut("aääää", 5))
	require.Equal(t, "…", cut("äöü", 4))
}

func TestPlain(t *testing.T) {
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

// TestLastPageMayGrow: nobody tells that a page came behind one that was full.
func TestLastPageMayGrow(t *testing.T) {
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
