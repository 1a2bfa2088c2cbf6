package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestConfiguration(t *testing.T) {
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "berth.yaml")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	t.Run("defaults are filled", func(t *testing.T) {
		c, err := readConfig(write("repository: {url: \"https://git.example/estate.git\", directory: /var/lib/berth/estate.git}\n"))
		require.NoError(t, err)
		require.Equal(t, "main", c.Repository.Branch)
		require.Equal(t, 5*time.Second, time.Duration(c.Interval))
		require.Equal(t, "127.0.0.1:8080", c.Listen)
		require.Nil(t, c.GitHub)
	})
	t.Run("every wrong value is told, once, at its place", func(t *testing.T) {
		path := write(`repository:
  url: ftp://git.example/estate.git
  directory: /var/lib/berth/estate.git
interval: soon
`)
		_, err := readConfig(path)
		require.Error(t, err)
		for _, want := range []string{path + ":2:8: repository.url:", path + ":4:11: interval:"} {
			require.ErrorContains(t, err, want)
		}
	})
	t.Run("a misspelt field is told at its place", func(t *testing.T) {
		path := write("repository: {url: \"https://git.example/estate.git\", directory: /var/lib/berth/estate.git}\nlissten: 127.0.0.1:1\n")
		_, err := readConfig(path)
		require.ErrorContains(t, err, path+":2:1: lissten: field not allowed")
	})
	t.Run("a missing field is named", func(t *testing.T) {
		_, err := readConfig(write("repository: {url: \"https://git.example/estate.git\", directory: /d}\ngithub: {owner: lab, repository: estate, token: {env: TOKEN}}\n"))
		require.ErrorContains(t, err, "github.webhook_secret: field is required")
	})
	t.Run("a key twice is refused", func(t *testing.T) {
		_, err := readConfig(write("listen: a:1\nlisten: b:1\n"))
		require.ErrorContains(t, err, "listen")
	})
	t.Run("a secret is read from its file, without the line end", func(t *testing.T) {
		s := secret{File: write("s3cret\n")}
		v, err := s.read()
		require.NoError(t, err)
		require.Equal(t, "s3cret", v)
		_, err = (&secret{File: write("\n")}).read()
		require.ErrorContains(t, err, "empty")
		require.NotContains(t, err.Error(), "s3cret")
	})
}
