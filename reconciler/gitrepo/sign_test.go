package gitrepo_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
	"berth/schema/signature"
)

// signingKey returns a key made by ssh-keygen, and a file of allowed signers for
// Git.
func signingKey(t *testing.T, args ...string) (key *signature.SigningKey, allowed string) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "key")
	out, err := exec.CommandContext(t.Context(), "ssh-keygen",
		append([]string{"-q", "-N", "", "-C", "berth", "-f", file}, args...)...).CombinedOutput()
	require.NoError(t, err, string(out))
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	key, err = signature.ParseSigningKey(data)
	require.NoError(t, err)
	public, err := os.ReadFile(file + ".pub")
	require.NoError(t, err)
	allowed = filepath.Join(dir, "allowed_signers")
	require.NoError(t, os.WriteFile(allowed, []byte("berth@localhost namespaces=\"git\" "+string(public)), 0o600))
	return key, allowed
}

// Every commit on berth/status and berth/in-force verifies with git and an
// allowed_signers file, and with no other key.
func TestCommitsOfBerthAreSigned(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"ed25519": {"-t", "ed25519"}, "ecdsa": {"-t", "ecdsa"},
		"rsa": {"-t", "rsa", "-b", "2048"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key, allowed := signingKey(t, args...)
			_, stranger := signingKey(t, "-t", "ed25519")
			s := gittest.New(t, estateFiles())
			r := open(t, s, func(o *gitrepo.Options) { o.Sign = key.SignCommit })
			tips := fetch(t, r)
			inForce, err := r.WriteInForce(t.Context(), "", reconciler.InForce{Commit: tips.Main, CorrelationID: "c", Epoch: 1})
			require.NoError(t, err)
			status := ""
			for i, phase := range []plan.Phase{plan.PhaseRequested, plan.PhaseDeploying, plan.PhaseRunning} {
				status, err = r.WriteStatus(t.Context(), status, batch(uint64(i+1), tips.Main, unit("physics", "lattice", "train", phase)))
				require.NoError(t, err)
			}
			verify := func(allowed, commit string) error {
				_, err := s.Git("-c", "gpg.ssh.allowedSignersFile="+allowed, "verify-commit", commit)
				return err
			}
			commits, err := s.Git("rev-list", "--first-parent", "--not", "main", "--not", inForce, status)
			require.NoError(t, err)
			require.Len(t, strings.Fields(commits), 4)
			for _, commit := range strings.Fields(commits) {
				require.NoError(t, verify(allowed, commit))
				require.Error(t, verify(stranger, commit))
			}
			require.NoError(t, s.Fsck())

			// A signed commit is read back unchanged.
			again := open(t, s)
			require.Equal(t, reconciler.Tips{Main: tips.Main, InForce: inForce, Status: status}, fetch(t, again))
			tree, err := again.ReadStatus(t.Context(), status)
			require.NoError(t, err)
			require.Empty(t, tree.Warnings)
			said, err := again.ReadInForce(t.Context(), inForce)
			require.NoError(t, err)
			require.Equal(t, tips.Main, said.Commit)
		})
	}
}

func TestFailedSignatureWritesNoCommit(t *testing.T) {
	t.Parallel()
	broken := errors.New("the key is gone")
	s := gittest.New(t, estateFiles())
	r := open(t, s, func(o *gitrepo.Options) { o.Sign = func([]byte) ([]byte, error) { return nil, broken } })
	tips := fetch(t, r)
	_, err := r.WriteStatus(t.Context(), "", batch(1, tips.Main, unit("physics", "lattice", "train", plan.PhaseRunning)))
	require.ErrorIs(t, err, broken)
	_, err = r.WriteInForce(t.Context(), "", reconciler.InForce{Commit: tips.Main, Epoch: 1})
	require.ErrorIs(t, err, broken)
	require.Empty(t, s.Tip(reconciler.BranchStatus)+s.Tip(reconciler.BranchInForce))
}
