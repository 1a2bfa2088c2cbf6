package main

import (
	"os"
	"path/filepath"
	"regexp"
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
