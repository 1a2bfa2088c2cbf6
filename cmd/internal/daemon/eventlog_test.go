package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/cmd/internal/labtest"
	"berth/cmd/internal/remote"
	"berth/examples/await"
	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/gitrepo/statusbranch"
	"berth/reconciler/plan"
)

// forwarder forwards connections to the address that is set, and can cut all of them off.
type forwarder struct {
	net.Listener
	to atomic.Pointer[string]

	mu    sync.Mutex
	conns []net.Conn
}

func newForwarder(t *testing.T) *forwarder {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &forwarder{Listener: l}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", *f.to.Load())
			if err != nil {
				_ = in.Close()
				continue
			}
			f.mu.Lock()
			f.conns = append(f.conns, in, out)
			f.mu.Unlock()
			for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
				go func() {
					_, _ = io.Copy(pair[0], pair[1])
					_ = pair[0].Close()
				}()
			}
		}
	}()
	t.Cleanup(func() { _ = l.Close(); f.cut() })
	return f
}

// cut cuts off all connections.
func (f *forwarder) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		_ = c.Close()
	}
	f.conns = nil
}

// received are the events that a client of the stream got.
type received struct {
	mu  sync.Mutex
	ids []string
}

func (r *received) take(data string) error {
	var e plan.Event
	if err := json.Unmarshal([]byte(data), &e); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids = append(r.ids, e.EventID)
	return nil
}

func (r *received) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ids)
}

// logged returns the ids of all events of the project of assembly on the branch.
func (k *kept) logged() (ids []string) {
	repo, err := gitrepo.OpenLocal(k.git.Dir)
	require.NoError(k, err)
	defer repo.Close()
	for e, err := range repo.Events(k.Context(), k.git.Tip(reconciler.BranchStatus), statusbranch.LogOrder{}) {
		require.NoError(k, err)
		if strings.Contains(string(e.Value.Payload), `"project_id":"biology.genomes"`) {
			ids = append(ids, e.Value.EventID)
		}
	}
	return ids
}

// A client of the stream gets each event once and in order through cut connections, a killed leader, another daemon
// that leads, and a leader whose mirror is fetched anew (requirement E7).
func TestEventStreamIsResumed(t *testing.T) {
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
	mirror := func(i int) string { return filepath.Join(k.dir, fmt.Sprint("mirror-", i)) }
	configure := func(i int) string {
		return k.configure(fmt.Sprint("berth-", i), map[string]any{
			"estate": "north", "authority": map[string]any{"trust_main": true}, "listen": listen[i],
			"repository": map[string]any{"url": k.git.URL, "directory": mirror(i)},
			"api": map[string]any{
				"url": urls[i], "peers": []string{urls[1-i]},
				"tokens": []any{map[string]any{"login": labtest.AssemblyOwner, "token": map[string]string{"file": token}}},
			},
			"memory_runtime": map[string]any{"directory": filepath.Join(k.dir, "world"), "backends": []string{"slurm"}},
			"interval":       "200ms", "poll": "100ms", "flush_window": "50ms",
		}, nil)
	}
	leads := func(i int) {
		t.Helper()
		await.True(t, urls[i]+" leads", func() bool {
			res, err := http.Get(urls[i] + "/readyz")
			if err != nil {
				return false
			}
			defer res.Body.Close()
			return res.StatusCode == http.StatusOK
		}, func() any { return "it does not" })
	}
	suspended := false
	change := func() {
		suspended = !suspended
		k.git.MustCommit(t, "main", gittest.Commit{Message: "change", Parent: k.git.Tip("main"), Files: map[string]string{
			labtest.AssemblyFile: strings.Replace(labtest.AssemblyYAML(), "spec:\n", fmt.Sprintf("suspend: %t\nspec:\n", suspended), 1)}})
	}
	first := serveProcess(t, configure(0))
	leads(0)

	via := newForwarder(t)
	via.to.Store(&listen[0])
	got, ended := &received{}, make(chan error, 1)
	var lost atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	follow := func(query url.Values) error {
		server := &remote.Server{URL: "http://" + via.Addr().String(), TokenFile: token}
		return server.Events(ctx, query, func(error) { lost.Add(1) }, got.take)
	}
	go func() { ended <- follow(url.Values{"since": {time.Now().Add(-time.Hour).Format(time.RFC3339)}}) }()
	settled := func(step string) {
		t.Helper()
		n := len(k.logged())
		change()
		await.True(t, step, func() bool {
			select {
			case err := <-ended:
				require.NoError(t, err)
			default:
			}
			all := k.logged()
			return len(all) > n && len(got.all()) == len(all)
		}, func() any { return fmt.Sprintf("log %q\nstream %q", k.logged(), got.all()) })
		require.Equal(t, k.logged(), got.all(), step)
	}
	settled("the first event")
	for range 3 {
		via.cut()
		settled("a cut connection")
	}
	second := serveProcess(t, configure(1))
	await.True(t, "the standby", func() bool {
		res, err := http.Get(urls[1] + "/api/v1/apps/catalog")
		if err != nil {
			return false
		}
		defer res.Body.Close()
		return res.Request.URL.Host == listen[0]
	}, func() any { return "it sends nobody to the leader" })
	change()
	require.NoError(t, first.Process.Kill())
	_ = first.Wait()
	via.to.Store(&listen[1])
	leads(1)
	settled("another daemon")

	require.NoError(t, os.RemoveAll(mirror(0)))
	serveProcess(t, configure(0))
	change()
	require.NoError(t, second.Process.Kill())
	_ = second.Wait()
	via.to.Store(&listen[0])
	leads(0)
	settled("a new mirror")
	require.GreaterOrEqual(t, lost.Load(), int64(3))
	cancel()
	require.NoError(t, <-ended)
}
