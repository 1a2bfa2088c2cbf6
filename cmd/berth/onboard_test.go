package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/cmd/internal/labtest"
)

// The unchanged documents of deploy/onboard.md make the app of the lab ready and are valid.
func TestOnboardPageMakesAnAppReady(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(moduleRoot, "deploy/onboard.md"))
	require.NoError(t, err)
	files := labtest.Files()
	platform, _, found := strings.Cut(string(page), "\n## A tenant's own app\n")
	require.True(t, found)
	shown := regexp.MustCompile(
		"(?ms)^   `((?:platform|tenants)/\\S+\\.(?:yaml|md))`:\n\n   ```(?:yaml|markdown)\n(.*?)^   ```$",
	).FindAllStringSubmatch(platform, -1)
	require.Len(t, shown, 6, "app, its page, version, entitlement, account, instance")
	for _, m := range shown {
		files[m[1]] = regexp.MustCompile(`(?m)^   `).ReplaceAllString(m[2], "")
	}
	member := regexp.MustCompile("(?ms)^   In `(\\S+roles.yaml)`, below `members`:\n\n   ```\n(.*?)^   ```$").FindStringSubmatch(platform)
	require.NotNil(t, member)
	files[member[1]] += regexp.MustCompile(`(?m)^   `).ReplaceAllString(member[2], "")
	dir := t.TempDir()
	for path, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600))
	}
	out, _, err := berthCmd("", "validate", dir)
	require.NoError(t, err, out)
	require.Contains(t, out, "all valid")
	out, _, err = berthCmd("", "onboard", "check", "slurm", "--dir", dir)
	require.NoError(t, err, out)
	require.True(t, strings.HasSuffix(out, "slurm: 7 of 7 points hold\n"), out)
}
