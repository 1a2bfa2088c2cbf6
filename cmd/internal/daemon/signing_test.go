package daemon

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A signing key that cannot be used is a plain error at the start; without one,
// the log says that status commits are not signed.
func TestSigningKey(t *testing.T) {
	dir := t.TempDir()
	keygen := func(name, passphrase string, args ...string) string {
		file := filepath.Join(dir, name)
		out, err := exec.CommandContext(t.Context(), "ssh-keygen",
			append([]string{"-q", "-N", passphrase, "-C", "", "-f", file}, args...)...).CombinedOutput()
		require.NoError(t, err, string(out))
		return file
	}
	good, locked := keygen("good", "", "-t", "ed25519"), keygen("locked", "secret", "-t", "ed25519")
	short := keygen("short", "", "-t", "rsa", "-b", "1024")
	garbage := filepath.Join(dir, "garbage")
	require.NoError(t, os.WriteFile(garbage, []byte("-----BEGIN OPENSSH PRIVATE KEY-----\nx\n"), 0o600))
	for _, c := range []struct{ file, log, err string }{
		{"", "status commits are not signed; set repository.signing_key", ""},
		{good, "status commits are signed", ""},
		{filepath.Join(dir, "nowhere"), "", "repository.signing_key: open " + dir + "/nowhere: no such file or directory"},
		{dir, "", "repository.signing_key: read " + dir + ": is a directory"},
		{locked, "", "repository.signing_key: " + locked + ": the key has a passphrase"},
		{garbage, "", "repository.signing_key: " + garbage + ": the file holds no SSH private key"},
		{good + ".pub", "", "repository.signing_key: " + good + ".pub: the file holds no SSH private key"},
		{short, "", "an RSA key of 1024 bits is too short"},
	} {
		var said bytes.Buffer
		config := Config{}
		config.Repository.SigningKey = c.file
		sign, err := config.signer(slog.New(slog.NewTextHandler(&said, nil)))
		if c.err != "" {
			require.ErrorContains(t, err, c.err)
			require.NotContains(t, err.Error(), "BEGIN")
			continue
		}
		require.NoError(t, err)
		require.Contains(t, said.String(), c.log)
		require.Equal(t, c.file != "", sign != nil)
	}
}
