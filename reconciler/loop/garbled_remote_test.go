package loop_test

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
)

// garbler is a Git server that damages its answers while it is on.
type garbler struct {
	inner *gittest.Server

	mu    sync.Mutex
	on    bool
	draw  *rand.Rand
	stale map[string]*httptest.ResponseRecorder // an earlier answer by request
	kinds map[string]int                        // number of damaged answers by kind
	total int                                   // number of answers
}

// garbled starts a garbler in front of a server and returns its URL.
func garbled(t *testing.T, inner *gittest.Server, seed uint64) (*garbler, string) {
	g := &garbler{inner: inner, draw: rand.New(rand.NewPCG(seed, 0)), stale: map[string]*httptest.ResponseRecorder{},
		kinds: map[string]int{}}
	s := httptest.NewServer(g)
	t.Cleanup(s.Close)
	return g, s.URL + "/" + gittest.RepoName
}

func (g *garbler) set(on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.on = on
}

func (g *garbler) answers() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.total
}

func (g *garbler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := httptest.NewRecorder()
	g.inner.ServeHTTP(answer, r)
	kind, answer, delay, cut := g.damage(r.Method+" "+r.URL.String(), answer)
	time.Sleep(delay) // the moment of the answer
	if kind == "lost" {
		panic(http.ErrAbortHandler)
	}
	for name, values := range answer.Header() {
		if name != "Content-Length" {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
	if cut {
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		panic(http.ErrAbortHandler)
	}
}

// damage damages an answer at random. It returns cut if the connection ends early.
func (g *garbler) damage(
	asked string, answer *httptest.ResponseRecorder,
) (kind string, out *httptest.ResponseRecorder, delay time.Duration, cut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.total++
	before := g.stale[asked]
	if before == nil || g.draw.IntN(10) == 0 {
		g.stale[asked] = answer
	}
	if !g.on || g.draw.IntN(10) < 3 {
		return "", answer, 0, false
	}
	kinds := []string{"bytes", "cut off", "cut in two", "doubled", "swapped", "refused", "page", "empty", "lost", "slow", "stale"}
	kind = kinds[g.draw.IntN(len(kinds))]
	g.kinds[kind]++
	body := slices.Clone(answer.Body.Bytes())
	at := func() int { return g.draw.IntN(len(body) + 1) }
	code := answer.Code
	switch kind {
	case "bytes":
		for range min(len(body), 1+g.draw.IntN(8)) {
			body[g.draw.IntN(len(body))] ^= byte(1 + g.draw.IntN(255))
		}
	case "cut off":
		body = body[:at()]
	case "cut in two":
		body, cut = body[:at()], true
	case "doubled":
		i := at()
		body = slices.Concat(body[:i], body[i/2:])
	case "swapped":
		i := at()
		body = slices.Concat(body[i:], body[:i])
	case "refused":
		code, body = []int{401, 403, 404, 429, 500, 502, 503}[g.draw.IntN(7)], []byte("<html>try again</html>")
	case "page":
		body = []byte("<html><body>You are being logged in</body></html>")
	case "empty":
		body = nil
	case "slow":
		delay = time.Duration(g.draw.IntN(300)) * time.Millisecond
	case "stale":
		// The answer to a push names its branch only. Nobody could tell it from the answer to
		// an earlier push to that branch; caches do not keep answers to a POST (RFC 9110, 9.3.3).
		if before != nil && (reported(before) == "" || reported(before) != reported(answer)) {
			code, body = before.Code, before.Body.Bytes()
		}
	}
	out = httptest.NewRecorder()
	maps.Copy(out.Header(), answer.Header())
	out.Code, out.Body = code, bytes.NewBuffer(body)
	return kind, out, delay, cut
}

// reported returns the branch that the answer to a push names, without its outcome.
func reported(answer *httptest.ResponseRecorder) string {
	m := regexp.MustCompile(`(?:ok|ng) (refs/heads/\S+)`).FindSubmatch(answer.Body.Bytes())
	if m == nil {
		return ""
	}
	return string(m[1])
}

// garbledRemoteHeals damages the answers of a remote for a number of changes, with restarts of the
// daemon after some of them. The daemon must converge after the remote recovers.
func garbledRemoteHeals(t *testing.T, seed uint64, changes, restart int) {
	t.Logf("seed %d", seed)
	w := newWorld(t)
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})
	g, url := garbled(t, w.git, seed)
	at := func(o *gitrepo.Options) { o.URL = url }
	dir := t.TempDir()
	d := w.startWith(dir, at)
	w.eventually("running", w.phase("train", plan.PhaseRunning))

	g.set(true)
	workers, starts := 1, 1
	for n := range changes {
		const between = 8 // a poll, a fetch and a push or two, and what is tried again of them
		answers := g.answers()
		w.eventually("more answers of the remote", func() bool { return g.answers() >= answers+between })
		workers = 1 + workers%4
		path, text = instance("train", workers)
		w.put(map[string]string{path: text})
		if (n+1)%restart > 0 {
			continue
		}
		select {
		case err := <-d.ended:
			t.Fatalf("the daemon stopped by itself: %v", err)
		default:
		}
		_ = d.stop() // the next daemon records unwritten changes
		if starts++; starts%3 == 0 {
			dir = t.TempDir()
		}
		d = w.startWith(dir, at)
	}
	g.set(false)
	recovered := time.Now()
	workers = 1 + workers%4
	path, text = instance("train", workers)
	commit := w.put(map[string]string{path: text})
	w.eventually("the last change, after the remote recovered", func() bool {
		s, rev := w.status("train"), w.revision()
		return converged(s, workers+1) && rev.Commit == commit && rev.Frozen == "" && len(d.Unsettled()) == 0
	})
	took := time.Since(recovered)
	require.NoError(t, d.stop())
	w.noEventTwice()
	require.NoError(t, w.verifyAudit())
	_, err := w.git.Git("fsck", "--strict")
	require.NoError(t, err)
	damaged := 0
	for _, n := range g.kinds {
		damaged += n
	}
	t.Logf("seed %d: %d answers damaged in %d changes (%v), %d starts; converged %s after the remote recovered", seed, damaged, changes,
		g.kinds, starts, took.Round(time.Millisecond))
}

// The long form, TestLongGarbledRemoteHeals, garbles with four seeds during 12 changes, and during 180 changes with one of
// the time.
func TestGarbledRemoteHeals(t *testing.T) {
	t.Parallel()
	garbledRemoteHeals(t, 0, 5, 2)
}
