package daemon

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Retention is in days: 90 by default, and unset without an API.
func TestRetention(t *testing.T) {
	c := defaults()
	require.Negative(t, c.retention())
	c.API = &apiConfig{}
	require.Equal(t, 90*24*time.Hour, c.retention())
	path := filepath.Join(t.TempDir(), "berth.yaml")
	write := func(retention string) {
		require.NoError(t, os.WriteFile(path,
			[]byte("repository: {url: \"https://g.example/e.git\", token: {env: T}, directory: /d}\nauthority: {trust_main: true}\napi: "+
				"{}\nretention: "+retention+"\npoll: 90s\n"), 0o600))
	}
	write("7d")
	read, err := ReadConfig(path)
	require.NoError(t, err)
	require.Equal(t, 7*24*time.Hour, read.retention())
	require.Equal(t, 90*time.Second, time.Duration(read.Poll))
	for _, bad := range []string{"7", "7h", "0d", "-1d", "forever"} {
		write(bad)
		_, err := ReadConfig(path)
		require.ErrorContains(t, err, "retention", bad)
	}
}
