package daemon

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
	"berth/schema"
)

// A credential that is refused, or cannot be read, ends sync --once at once and is
// named with its file; it is never printed.
func TestSyncEndsAtRefusedCredential(t *testing.T) {
	s, err := gittest.Start(gittest.Options{Dir: t.TempDir(), Token: "canary-right", Files: map[string]string{"README.md": "estate\n"}})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	dir := t.TempDir()
	token, config := filepath.Join(dir, "token"), filepath.Join(dir, "berth.yaml")
	require.NoError(t, os.WriteFile(config,
		fmt.Appendf(nil, "repository: {url: %q, directory: cache, token: {file: %s}}\nauthority: {trust_main: true}\n", s.URL, token),
		0o600))
	once := func() error {
		all, err := New([]string{config}, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		return onceAll(t, all)
	}
	err = once()
	require.ErrorContains(t, err, "repository.token: secret: open "+token)
	require.NotErrorIs(t, err, errTimeout, "it does not wait for the timeout")
	require.NoError(t, os.WriteFile(token, []byte("canary-wrong\n"), 0o600))
	err = once()
	require.ErrorContains(t, err, "refused the credential repository.token in "+token+"; replace it")
	require.NotErrorIs(t, err, errTimeout, "it does not wait for the timeout")
	require.NotContains(t, err.Error(), "canary")
	require.NoError(t, os.WriteFile(token, []byte("canary-right\n"), 0o600))
	require.NoError(t, once())
}

func TestLogOfDurationsHasUnits(t *testing.T) {
	var out bytes.Buffer
	NewLogger(&out, slog.LevelInfo).Info("status push retried", "again_in", 1500*time.Millisecond, slog.Group("g", "after", 2*time.Minute))
	require.Contains(t, out.String(), `"again_in":"1.5s"`, "the writer is not a terminal, so the log is JSON")
	require.Contains(t, out.String(), `"after":"2m0s"`)
}

func TestSummaryOfWork(t *testing.T) {
	key := func(name string) schema.Key { return schema.InstanceKey("physics", "lattice", name) }
	var w workLog
	text := func() string {
		return Summary{Created: w.named("created"), Changed: w.named("changed"), Deleted: w.named("deleted")}.changes()
	}
	require.Equal(t, "no changes made", text())
	for _, verb := range []plan.Verb{plan.Create, plan.Join} {
		w.record(key("new"), verb)
	}
	w.record(key("old"), plan.Stop)
	w.record(key("gone"), plan.Leave)
	w.record(key("gone"), plan.Delete)
	require.Equal(t, "created physics.lattice/new; changed physics.lattice/old; deleted physics.lattice/gone", text())
	for i := range 5 {
		w.record(key(fmt.Sprintf("more-%d", i)), plan.Create)
	}
	require.Equal(t, "created 6; changed physics.lattice/old; deleted physics.lattice/gone", text())
	require.False(t, strings.Contains(text(), "more-"))
}
