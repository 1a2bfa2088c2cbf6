package daemon

import (
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/cmd/internal/labtest"
	"berth/examples/await"
	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/statusbranch"
	"berth/schema/audit"
)

// A request at an admin path is recorded exactly once, even if the process is
// killed right after its answer and several times afterwards.
func TestBreakGlassRecordSurvivesAKill(t *testing.T) {
	listen, err := labtest.FreePort()
	require.NoError(t, err)
	token := strings.Repeat("admin-", 8)
	secret := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(secret, []byte(token), 0o600))
	k := newKept(t, "north", listen, map[string]any{
		"listen": listen, "forge": nil, "flush_window": "1h",
		"api": map[string]any{"tokens": []any{map[string]any{"login": labtest.Administrator, "token": map[string]string{"file": secret}}}},
	})
	read := func(correlation string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+listen+"/api/v1/admin/orgs/biology/shared-app-runtimes",
			nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("X-Break-Glass", "incident 7")
		r.Header.Set("X-Correlation-ID", correlation)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode
	}
	told := func(correlation string) (n int) {
		repo, err := gitrepo.OpenLocal(k.git.Dir)
		require.NoError(t, err)
		defer repo.Close()
		for line, err := range repo.Audit(t.Context(), k.git.Tip(reconciler.BranchStatus), statusbranch.LogOrder{}) {
			if err == nil && line.Value.CorrelationID == correlation {
				n++
			}
		}
		return n
	}

	p := serveProcess(t, k.path)
	await.Equal(t, "the first answer", http.StatusOK, func() int { return read("first-000001") })
	require.Equal(t, http.StatusOK, read("peek-000001"))
	require.NoError(t, p.Process.Kill())
	_ = p.Wait()
	require.Zero(t, told("peek-000001"), "nothing was written yet, or the test shows nothing")

	// The next writes it, and is killed when the disk has not heard of that.
	journal := filepath.Join(k.dir, "mirror", "break-glass")
	before, err := os.ReadFile(journal)
	require.NoError(t, err)
	config, err := os.ReadFile(k.path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(k.path, []byte(strings.Replace(string(config), "flush_window: 1h", "flush_window: 50ms", 1)), 0o600))
	for range 2 {
		p = serveProcess(t, k.path)
		await.Equal(t, "the record in the audit log", 1, func() int { return told("peek-000001") })
		await.Equal(t, "a daemon that is ready", http.StatusOK, func() int {
			r, err := http.Get("http://" + listen + "/readyz")
			if err != nil {
				return 0
			}
			_ = r.Body.Close()
			return r.StatusCode
		})
		require.NoError(t, p.Process.Kill())
		_ = p.Wait()
		require.NoError(t, os.WriteFile(journal, before, 0o600))
	}
	require.Equal(t, 1, told("peek-000001"))
	require.Equal(t, 1, told("first-000001"))
}

// A request is refused if its record cannot be stored. A stored record is kept
// for the next process until it is written to the audit log.
func TestBreakGlassRecordsAreKept(t *testing.T) {
	c := &Config{}
	c.Repository.Directory = filepath.Join(t.TempDir(), "cache")
	log := slog.New(slog.DiscardHandler)
	record := func(id string) audit.Record {
		return audit.Record{RecordID: id, Author: audit.Author{Actor: "otto"},
			Outcome: audit.Outcome{Verdict: audit.Allowed, Reason: "incident <7>"}}
	}
	ids := func(g *breakGlassLog) (out []string) {
		for _, r := range g.Records() {
			require.Equal(t, "incident <7>", r.Reason)
			out = append(out, r.RecordID)
		}
		return out
	}
	g := openBreakGlassLog(c, log)
	for _, id := range []string{"a", "b", "c"} {
		require.NoError(t, g.add(record(id)))
	}
	g = openBreakGlassLog(c, log) // nobody closed it
	require.Equal(t, []string{"a", "b", "c"}, ids(g))
	g.Written([]string{"b", "of the loop's own"})
	require.Equal(t, []string{"a", "c"}, ids(g))
	require.NoError(t, g.Close())
	g = openBreakGlassLog(c, log)
	require.Equal(t, []string{"a", "c"}, ids(g))

	require.NoError(t, os.RemoveAll(c.Repository.Directory))
	require.NoError(t, os.WriteFile(c.Repository.Directory, nil, 0o600))
	require.Error(t, g.add(record("d")), "the disk is full")
	require.Equal(t, []string{"a", "c"}, ids(g))
	e := &estate{breakGlass: g, log: log}
	require.Error(t, e.audit(record("e")))
}
