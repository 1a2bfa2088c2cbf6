package daemon

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/cmd/internal/labtest"
	"berth/cmd/internal/remote"
	"berth/examples/await"
	"berth/reconciler/gitrepo/gittest"
	"berth/schema/queue"
)

// The second of two daemons of an estate is the standby: it sends callers to the leader, takes no delivery,
// and takes leadership once the first is gone. The first is then its standby.
func TestStandbyLeadsAfterTheLeader(t *testing.T) {
	t.Parallel()
	var listen, urls []string
	for range 2 {
		l, err := labtest.FreePort()
		require.NoError(t, err)
		listen, urls = append(listen, l), append(urls, "http://"+l)
	}
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte(strings.Repeat("dora-", 8)), 0o600))
	k := newKept(t, "north", listen[0], nil)
	configure := func(i int) string {
		return k.configure(fmt.Sprint("berth-", i), map[string]any{
			"estate": "north", "authority": map[string]any{"trust_main": true}, "listen": listen[i],
			"repository": map[string]any{"url": k.git.URL, "directory": filepath.Join(k.dir, fmt.Sprint("mirror-", i))},
			"api": map[string]any{
				"url": urls[i], "peers": []string{urls[1-i]},
				"tokens": []any{map[string]any{"login": labtest.AssemblyOwner, "token": map[string]string{"file": token}}},
			},
			"memory_runtime": map[string]any{"directory": filepath.Join(k.dir, "world"), "backends": []string{"slurm"}},
			"interval":       "200ms", "poll": "1h", "flush_window": "50ms",
		}, nil)
	}
	k.git.MustCommit(t, "main", gittest.Commit{Message: "add assembly", Parent: k.git.Tip("main"),
		Files: map[string]string{labtest.AssemblyFile: labtest.AssemblyYAML()}})
	state := func(i int, path string) (code int, text string) {
		res, err := http.Get(urls[i] + path)
		if err != nil {
			return 0, err.Error()
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(body)
	}
	leads := func(i int) {
		t.Helper()
		var code int
		var text string
		await.True(t, urls[i]+" leads", func() bool {
			code, text = state(i, "/estates/north/leader")
			return code == http.StatusOK
		}, func() any { return fmt.Sprint(code, " ", text) })
	}
	standsBy := func(i int) {
		t.Helper()
		var code int
		var text string
		await.True(t, urls[i]+" stands by", func() bool {
			code, text = state(i, "/readyz")
			return code == http.StatusServiceUnavailable && strings.Contains(text, "standing by; "+urls[1-i]+" leads")
		}, func() any { return fmt.Sprint(code, " ", text) })
	}
	submit := func(i int, key string) (job queue.Job, err error) {
		server := remote.Server{URL: urls[i], TokenFile: token}
		_, err = server.Do(t.Context(), remote.Request{
			Method: http.MethodPost, Place: remote.Place{Project: "biology.genomes", Instance: "assembly"}, Path: "queue/jobs", Key: key,
			Body: queue.Request{Script: "#!/bin/sh\ntrue\n"},
		}, &job)
		return job, err
	}
	submitted := func(i int, key string) queue.Job {
		t.Helper()
		return await.NoError(t, "the job "+key, func() (queue.Job, error) { return submit(i, key) })
	}

	first := serveProcess(t, configure(0))
	leads(0)
	one := submitted(0, "first")
	serveProcess(t, configure(1))
	standsBy(1)
	again, err := submit(1, "first")
	require.NoError(t, err, "the standby sends the client to the leader")
	require.Equal(t, one.JobID, again.JobID)

	require.NoError(t, first.Process.Kill())
	_ = first.Wait()
	_, err = submit(1, "second") // at first the leader does not answer; then the standby has no leader, or leads
	if apiError := new(remote.Error); errors.As(err, &apiError) {
		require.Equal(t, http.StatusServiceUnavailable, apiError.Status)
	}
	leads(1)
	require.NotEqual(t, one.JobID, submitted(1, "second").JobID)
	require.Equal(t, one.JobID, submitted(1, "first").JobID, "the new leader knows the key")

	serveProcess(t, configure(0))
	standsBy(0)
	again, err = submit(0, "first")
	require.NoError(t, err)
	require.Equal(t, one.JobID, again.JobID)
}

// The daemon asks only peers of berth.yaml whether they lead, whatever leader berth/status names. A peer that redirects or fails
// does not lead.
func TestOnlyConfiguredPeersAreAsked(t *testing.T) {
	answers := map[string]int{"/estates/north/leader": http.StatusOK}
	asked := 0
	peer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		code, ok := answers[r.URL.Path]
		if !ok {
			code = http.StatusNotFound
		}
		w.Header().Set("Location", "/health")
		w.WriteHeader(code)
	}))
	t.Cleanup(peer.Close)
	listener := peer.URL
	c := &Config{Estate: "north", API: &apiConfig{URL: "http://127.0.0.1:1", Peers: []string{listener}}}
	p := c.peers()
	require.True(t, p.Leads(t.Context(), listener))
	for _, code := range []int{http.StatusServiceUnavailable, http.StatusNotFound, http.StatusFound} {
		answers["/estates/north/leader"] = code
		require.False(t, p.Leads(t.Context(), listener))
	}
	require.Equal(t, 4, asked)
	answers["/estates/north/leader"] = http.StatusOK
	c.API.Peers = nil
	require.False(t, c.peers().Leads(t.Context(), listener))
	require.Equal(t, 4, asked, "a stranger is not asked")
	require.False(t, p.Leads(t.Context(), "http://127.0.0.1:1"))
}
