package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every relative link of the documentation leads to a file or folder.
func TestDocumentationLinksResolve(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"*.md", "deploy/*.md", "deploy/*/*.md", "examples/*.md"} {
		found, err := filepath.Glob(filepath.Join(moduleRoot, pattern))
		require.NoError(t, err)
		pages = append(pages, found...)
	}
	require.Greater(t, len(pages), 8)
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range link.FindAllSubmatch(text, -1) {
			_, err := os.Stat(filepath.Join(filepath.Dir(page), string(m[1])))
			require.NoError(t, err, "%s links to %s", page, m[1])
		}
	}
}

// The page for operators explains each warning and error that the daemon logs.
func TestOperatePageExplainsEachWarning(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(moduleRoot, "deploy/operate.md"))
	require.NoError(t, err)
	var explained []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllSubmatch(page, -1) {
		explained = append(explained, string(m[1]))
	}
	require.Greater(t, len(explained), 50)
	logged := regexp.MustCompile(`\.(?:Warn|Error)\((?:ctx, )?"([^"]+)"`)
	for _, path := range goFiles(t) {
		if strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/githubtest/") || strings.Contains(path, "/cmd/berth-lab/") {
			continue
		}
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, m := range logged.FindAllSubmatch(text, -1) {
			require.True(t, slices.ContainsFunc(explained, func(e string) bool { return strings.HasPrefix(string(m[1]), e) }),
				"%s logs %q: add it to deploy/operate.md", path, m[1])
		}
	}
}

// The page for operators lists each metric of the daemon, and no other.
func TestOperatePageListsEachMetric(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(moduleRoot, "deploy/operate.md"))
	require.NoError(t, err)
	listed, registered := map[string]bool{}, map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(berth_[a-z_]+|[a-z_]+_total)` \\|").FindAllSubmatch(page, -1) {
		listed[string(m[1])] = true
	}
	for _, path := range goFiles(t) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`Name: *"(berth_[a-z_]+|[a-z_]+_total)"|gauge\("(berth_[a-z_]+)"`).FindAllSubmatch(text, -1) {
			registered[string(m[1])+string(m[2])] = true
		}
	}
	require.Equal(t, registered, listed)
}
