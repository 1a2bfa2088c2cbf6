package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"berth/cmd/internal/cli"
)

// said runs a command in this process, and returns its output and exit status.
func said(t *testing.T, cmd *cobra.Command, args ...string) (out string, code int) {
	t.Helper()
	var text bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetOut(&text)
	cmd.SetErr(&text)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cli.WrapErrors(cmd)
	err := cmd.ExecuteContext(t.Context())
	var exit *cli.ExitError
	if err != nil {
		require.ErrorAs(t, err, &exit)
		code = exit.Code
		text.WriteString(exit.Error())
	}
	return text.String(), code
}

// The author, trailers and approvals of a head count in a local plan and in CI as
// they do on a pull request, as far as they are known.
func TestPlanReadsWhatTheHeadAsksFor(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "estate")
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join(moduleRoot, "examples/campus"))))
	changes, err := filepath.Abs(filepath.Join(moduleRoot, "examples/campus-changes"))
	require.NoError(t, err)
	git := func(args ...string) { t.Helper(); ciRun(t, dir, nil, 0, "git", args...) }
	git("init", "-q", "-b", "main")
	git("add", ".")
	git("commit", "-q", "-m", "the campus")
	head := func(branch, patch, message string) {
		t.Helper()
		git("checkout", "-q", "-B", branch, "main")
		git("apply", "--index", filepath.Join(changes, patch))
		git("commit", "-q", "-m", message)
	}
	plan := func(branch string, more ...string) (string, int) {
		t.Helper()
		return said(t, newPlanCmd(), append([]string{"--repo", dir, "--base", "main", "--head", branch}, more...)...)
	}

	head("clear-out", "clear-out.patch", "clear out")
	out, code := plan("clear-out", "--author", "petra-phys")
	require.Equal(t, 1, code, out)
	trailer := regexp.MustCompile(`Berth-Ack-Delete: [0-9a-f]{16}`).FindString(out)
	require.NotEmpty(t, trailer, "the finding shows the trailer")
	head("clear-out", "clear-out.patch", "clear out\n\n"+trailer)
	out, code = plan("clear-out", "--author", "petra-phys")
	require.Zero(t, code, out)
	_, code = plan("clear-out", "--author", "anna-lattice")
	require.Equal(t, 1, code, "the trailer does not replace the author's permission")
	out, code = plan("clear-out", "--author", "anna-lattice", "--approver", "petra-phys")
	require.Zero(t, code, out)
	require.Contains(t, out, "Approval by petra-phys is assumed from --approver")
	out, code = plan("clear-out")
	require.Zero(t, code, out)
	require.Contains(t, out, "--author checks it", "the output names the unchecked permission")

	head("needs-approval", "needs-approval.patch", "more")
	_, code = plan("needs-approval", "--author", "dora-genomes")
	require.Equal(t, 1, code)
	_, code = plan("needs-approval", "--author", "dora-genomes", "--approver", "dora-genomes")
	require.Equal(t, 1, code, "the change needs another user's permission")
	out, code = plan("needs-approval", "--author", "dora-genomes", "--approver", "ben-lattice", "--approver", "bella-bio")
	require.Zero(t, code, out)
	require.Contains(t, out, "Approval by bella-bio, ben-lattice")

	head("resume", "resume.patch", "again")
	out, code = plan("resume", "--author", "olga-ops")
	require.Equal(t, 1, code)
	require.Contains(t, out, "Break-Glass: reason")
	head("resume", "resume.patch", "again\n\nBreak-Glass: nobody of physics can be reached")
	out, code = plan("resume", "--author", "olga-ops")
	require.Zero(t, code, out)

	out, code = plan("resume", "--approver", "olga-ops")
	require.Equal(t, 2, code)
	require.Contains(t, out, "--approver needs --author")
}
