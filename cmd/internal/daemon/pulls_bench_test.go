package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"berth/cmd/internal/labtest"
	"berth/examples/large"
	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/loop"
	"berth/reconciler/plan"
	"berth/runtimes/backends"
	"berth/runtimes/memory"
	schemaestate "berth/schema/estate"
	"berth/webhooks/github"
	"berth/webhooks/github/githubtest"
)

// crowd is a large converged estate, with a forge that answers in 50 ms and a
// daemon that receives every webhook.
type crowd struct {
	*testing.B
	dir, listen string
	files       map[string]string
	instances   []string // documents that have a configuration of their own
	git         *gittest.Server
	forge       *githubtest.Server
	ahead       atomic.Int64 // of the real time, the forge's clock
	estates     *Daemon
	stop        func()
}

const forgeLatency = 50 * time.Millisecond

func newCrowd(b *testing.B, documents int) *crowd {
	c := &crowd{B: b, dir: b.TempDir(), files: large.Estate(documents)}
	for name, text := range c.files {
		if strings.Contains(name, "/instances/") && strings.Contains(text, "max_time_minutes: ") {
			c.instances = append(c.instances, name)
		}
	}
	slices.Sort(c.instances)
	c.git = gittest.New(b, c.files)
	c.world()
	var err error
	c.listen, err = labtest.FreePort()
	require.NoError(b, err)
	c.forge, err = githubtest.New(githubtest.Options{
		RepoDir: c.git.Dir, Owner: "example", Repo: "estate", Secret: []byte("s"), Log: slog.New(slog.DiscardHandler),
		Tokens:      map[string]githubtest.Token{labtest.Token: {Login: labtest.App, App: true}},
		Permissions: map[string]string{labtest.ProjectAdmin: "write", labtest.TenantOwner: "write"}, Latency: forgeLatency, Now: c.now,
		WebhookURL: "http://" + c.listen + "/webhooks/github",
	})
	require.NoError(b, err)
	b.Cleanup(c.forge.Close)
	secret := func(name, text string) map[string]string {
		path := filepath.Join(c.dir, name)
		require.NoError(b, os.WriteFile(path, []byte(text), 0o600))
		return map[string]string{"file": path}
	}
	config, err := yaml.Marshal(map[string]any{
		"estate": "crowd", "listen": c.listen, "authority": map[string]any{"trust_main": true},
		"repository": map[string]any{"url": c.forge.CloneURL(), "token": secret("git", labtest.Token), "allow_http": true,
			"directory": filepath.Join(c.dir, "mirror")},
		"forge": map[string]any{"kind": "github",
			"api_url": c.forge.APIURL(), "owner": "example", "repository": "estate", "login": labtest.App + "[bot]", "report": "checks",
			"token": secret("token", labtest.Token), "webhook_secret": secret("secret", "s"),
		},
		"memory_runtime": map[string]any{"directory": filepath.Join(c.dir, "world"), "backends": []string{"slurm"}},
		"interval":       "24h", "poll": "1m",
	})
	require.NoError(b, err)
	require.NoError(b, os.WriteFile(filepath.Join(c.dir, "berth.yaml"), config, 0o600))
	return c
}

func (c *crowd) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// world writes the state of the memory runtime: every instance runs as declared.
func (c *crowd) world() {
	loader, err := schemaestate.New(schemaestate.Options{Backends: backends.Definitions(), Releases: backends.Releases()})
	require.NoError(c, err)
	d, err := decide.New(decide.Options{Loader: loader}).Commit(c.Context(), decide.Standing{},
		[]decide.Step{{Commit: "c", Tree: schemaestate.Files(c.files)}}, time.Now().UTC().Format(time.DateOnly))
	require.NoError(c, err)
	require.Empty(c, d.Held)
	require.NoError(c, os.Mkdir(filepath.Join(c.dir, "world"), 0o700))
	for key, members := range plan.Place(d.Effective, plan.Memory{}).All() {
		states := map[string]any{}
		for _, m := range members {
			states[m.Name] = map[string]any{"node": m.Node, "state": plan.Running, "starts": 1}
		}
		data, err := json.Marshal(map[string]any{"applied": plan.Unit{Effective: *d.Effective.Unit(key), Members: members},
			"complete": true, "members": states})
		require.NoError(c, err)
		require.NoError(c, os.WriteFile(filepath.Join(c.dir, "world", memory.UnitFile(key)), data, 0o600))
	}
}

// serve runs the daemon until stop is called, with the given rate limiter or, if it
// is nil, with the default one.
func (c *crowd) serve(pace *github.Pacer) {
	c.Helper()
	said := &sink{}
	s, err := New([]string{filepath.Join(c.dir, "berth.yaml")},
		slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelWarn})))
	require.NoError(c, err)
	if pace != nil {
		s.all[0].config.Load().limiter = pace
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, nil) }()
	c.estates = s
	c.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			c.Error(err)
		}
		if c.Failed() {
			c.Log(said.String())
		}
	})
	c.Cleanup(c.stop)
	var left []loop.Left
	defer func() {
		if c.Failed() && len(left) > 0 {
			c.Log(len(left), " are not: ", left[:min(5, len(left))])
		}
	}()
	c.until("everything runs", 5*time.Minute, func() bool {
		time.Sleep(200 * time.Millisecond) // the list is long
		d := s.all[0].running.Load()
		left = nil
		if d != nil {
			left = d.loop.Unsettled()
		}
		return s.ready() == nil && d != nil && len(left) == 0
	})
}

func (c *crowd) until(what string, limit time.Duration, ok func() bool) {
	c.Helper()
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(2 * time.Millisecond) {
		require.True(c, time.Now().Before(deadline), "timeout after %v: %s", limit, what)
	}
}

// push makes commits on branches, all at once: each edits some documents of main.
func (c *crowd) push(edits map[string]map[string]string) {
	c.Helper()
	main := c.git.Tip("main")
	var in bytes.Buffer
	in.WriteString("feature done\n")
	for _, branch := range slices.Sorted(maps.Keys(edits)) {
		fmt.Fprintf(&in, "commit refs/heads/%s\ncommitter Ada <ada@example.org> now\ndata 4\nedit\nfrom %s\n", branch, main)
		for _, name := range slices.Sorted(maps.Keys(edits[branch])) {
			fmt.Fprintf(&in, "M 100644 inline %s\ndata %d\n%s\n", name, len(edits[branch][name]), edits[branch][name])
		}
	}
	in.WriteString("done\n")
	_, err := c.git.GitInput(&in, "fast-import", "--quiet", "--force", "--date-format=now")
	require.NoError(c, err)
}

// longer is some instances' documents with another time limit, the n-th.
func (c *crowd) longer(from, count, n int) map[string]string {
	out := map[string]string{}
	for i := range count {
		name := c.instances[(from+i)%len(c.instances)]
		out[name] = strings.Replace(c.files[name], "max_time_minutes: ", fmt.Sprintf("max_time_minutes: %d", n), 1)
	}
	require.Len(c, out, count)
	return out
}

// bare returns the time of the same requests to the forge in sequence.
func (c *crowd) bare(requests int) time.Duration {
	began := time.Now()
	const rounds = 5
	for range rounds {
		r, err := http.NewRequestWithContext(c.Context(), http.MethodGet, c.forge.APIURL()+"rate_limit", nil)
		require.NoError(c, err)
		r.Header.Set("Authorization", "Bearer "+labtest.Token)
		r.Header.Set("User-Agent", "bench")
		resp, err := http.DefaultClient.Do(r)
		require.NoError(c, err)
		resp.Body.Close()
	}
	return time.Duration(requests) * time.Since(began) / rounds
}

// pullsComputed is how often a pull request was planned.
func (c *crowd) pullsComputed() float64 {
	return reconciled(c, c.estates, reconciler.TaskPull)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// BenchmarkPulls measures how long users wait at pull requests. The estate has ten
// thousand documents and the forge answers in 50 ms. The first part measures the
// time from the delivery of a push to both checks and the comment, for 50 and for
// 1,000 documents. The second part has 200 open pull requests: it measures the time
// from a move of main until all are planned again and every change is written, at
// the rate limit of every daemon. The peers are the same requests in sequence, and
// git merge-tree of as many heads.
func BenchmarkPulls(b *testing.B) {
	for b.Loop() {
		c := newCrowd(b, 10_000)
		began := time.Now()
		c.serve(&github.Pacer{})
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "start-ms")

		pull, pushes := 0, 0
		spent := func(documents, rounds int) (took []time.Duration, requests int) {
			for range rounds {
				pushes++
				c.push(map[string]map[string]string{"change": c.longer(pushes*50, documents, pushes)})
				c.ahead.Add(int64(time.Hour)) // the limits are another matter
				c.forge.Settle()
				c.forge.Forget()
				began := time.Now()
				if pull == 0 {
					var err error
					pull, err = c.forge.OpenPull("change", "Longer", labtest.ProjectAdmin)
					require.NoError(b, err)
				} else {
					require.NoError(b, c.forge.Sync())
				}
				c.until("it is shown", time.Minute, func() bool { return labtest.PlanShown(c.forge, pull) })
				took = append(took, time.Since(began))
				requests = max(requests, len(c.forge.Requests()))
				w := c.forge.Writes()
				require.LessOrEqual(b, w.Creating, 3, "calls that create content")
			}
			slices.Sort(took)
			return took, requests
		}
		spent(50, 2) // to begin with
		took, requests := spent(50, 25)
		b.ReportMetric(ms(took[len(took)*95/100]), "small-p95-ms")
		b.ReportMetric(ms(took[len(took)/2]), "small-median-ms")
		b.ReportMetric(ms(c.bare(requests)), "small-bare-ms")
		b.ReportMetric(float64(requests), "requests")
		took, requests = spent(1_000, 5)
		b.ReportMetric(ms(took[len(took)-1]), "large-ms")
		b.ReportMetric(ms(c.bare(requests)), "large-bare-ms")
		require.Empty(b, c.forge.Violations())
	}
}

// BenchmarkPullsOpen is the other half of BenchmarkPulls.
func BenchmarkPullsOpen(b *testing.B) {
	const open, few = 200, 10
	for b.Loop() {
		c := newCrowd(b, 10_000)
		c.serve(&github.Pacer{})
		named := func(i, n int) (string, string) { // the i-th's document, edited for the n-th time
			name := c.instances[i*7]
			return name, large.Change(c.files[name], n)
		}
		edits := map[string]map[string]string{}
		for i := range open {
			name, text := named(i, 1)
			edits[fmt.Sprintf("change-%03d", i)] = map[string]string{name: text}
		}
		c.push(edits)
		// Opening them takes days on the test's clock, a few seconds each, so that the
		// forge's limits do not matter yet.
		days := make(chan struct{})
		go func() {
			for tick := time.NewTicker(100 * time.Millisecond); ; {
				select {
				case <-tick.C:
					c.ahead.Add(int64(time.Minute))
				case <-days:
					tick.Stop()
					return
				}
			}
		}()
		first := 0
		for i := range open {
			n, err := c.forge.OpenPull(fmt.Sprintf("change-%03d", i), "An edit", labtest.ProjectAdmin)
			require.NoError(b, err)
			first = max(first, n-i)
		}
		idle := func() {
			c.until("all are shown", 5*time.Minute, func() bool {
				time.Sleep(100 * time.Millisecond)
				for i := range open {
					if !labtest.PlanShown(c.forge, first+i) {
						return false
					}
				}
				return true
			})
			c.forge.Settle()
			n := c.pullsComputed()
			c.until("no plan is pending", time.Minute, func() bool {
				time.Sleep(2 * time.Second)
				before := n
				n = c.pullsComputed()
				return n == before
			})
		}
		idle()
		close(days)

		// A second daemon writes nothing, because everything is up to date.
		c.stop()
		c.ahead.Add(int64(24 * time.Hour))
		c.forge.Forget()
		began := time.Now()
		c.serve(nil)
		c.until("all are planned", 2*time.Minute, func() bool { return c.pullsComputed() >= open })
		b.ReportMetric(ms(time.Since(began)), "restart-ms")
		idle()
		writes := c.forge.Writes()
		b.ReportMetric(float64(writes.Creating+writes.Editing+writes.Deleting), "restart-writes")

		// Main moves, and ten of them conflict by then.
		before, edited := c.pullsComputed(), map[string]string{}
		for i := range few {
			name, text := named(i*17, 2)
			edited[name] = text
		}
		c.git.MustCommit(b, "main", gittest.Commit{Message: "move", Files: edited})
		c.forge.Forget()
		refused := c.forge.Usage(labtest.App + "[bot]").Refused
		began = time.Now()
		require.NoError(b, c.forge.Sync())
		c.until("all are planned again", 2*time.Minute, func() bool { return c.pullsComputed() >= before+open })
		b.ReportMetric(ms(time.Since(began)), "planned-again-ms")
		conflict := func(n int) bool {
			comments := c.forge.Comments(n)
			return len(comments) == 1 && strings.Contains(comments[0].Body, "onflict")
		}
		c.until("the changed plans are shown", 3*time.Minute, func() bool {
			for i := range few {
				if !conflict(first + i*17) {
					return false
				}
			}
			return true
		})
		b.ReportMetric(ms(time.Since(began)), "shown-again-ms")
		idle()
		var order []int // in which their comments were written
		for _, r := range c.forge.Requests() {
			if strings.HasPrefix(r.Op, "PATCH ") && strings.Contains(r.URL, "/comments/") {
				for i := range open {
					if c.forge.Comments(first + i)[0].Body == bodyOf(r.Body) {
						order = append(order, first+i)
					}
				}
			}
		}
		slices.Reverse(order)
		require.True(b, slices.IsSorted(order), "the newest first: %v", order)
		require.Len(b, order, few)
		writes = c.forge.Writes()
		b.ReportMetric(float64(writes.Creating), "created")
		b.ReportMetric(float64(writes.Editing), "edited")
		require.LessOrEqual(b, writes.Creating, 2*few)
		require.Equal(b, few, writes.Editing)
		require.Equal(b, refused, c.forge.Usage(labtest.App+"[bot]").Refused, "a limit was met")
		main := c.git.Tip("main")
		began = time.Now()
		for i := range open {
			_ = exec.CommandContext(b.Context(), "git", "--git-dir", c.git.Dir, "merge-tree", "--write-tree", main,
				fmt.Sprintf("change-%03d", i)).Run()
		}
		b.ReportMetric(ms(time.Since(began)), "merge-tree-ms")
		require.Empty(b, c.forge.Violations())
	}
}

// bodyOf is the text a request about a comment carries.
func bodyOf(request string) string {
	var r struct{ Body string }
	if json.Unmarshal([]byte(request), &r) != nil {
		return ""
	}
	return r.Body
}

// BenchmarkPullsOfOthers measures how long a person waits for the plan of a pull request: alone, and once another
// person has opened a thousand in one go.
func BenchmarkPullsOfOthers(b *testing.B) {
	const many = 1_000
	for b.Loop() {
		c := newCrowd(b, 10_000)
		c.serve(&github.Pacer{})
		edits := map[string]map[string]string{}
		for i := range many + 6 {
			name := c.instances[i]
			edits[fmt.Sprintf("change-%04d", i)] = map[string]string{name: large.Change(c.files[name], 1)}
		}
		c.push(edits)
		shown := func(i int) time.Duration {
			c.forge.Settle()
			began := time.Now()
			pull, err := c.forge.OpenPull(fmt.Sprintf("change-%04d", i), "An edit", labtest.ProjectAdmin)
			require.NoError(b, err)
			c.until("the plan is shown", 5*time.Minute, func() bool { return labtest.PlanShown(c.forge, pull) })
			return time.Since(began)
		}
		var alone []time.Duration
		for i := range 5 {
			c.ahead.Add(int64(time.Hour)) // the limits are another matter
			alone = append(alone, shown(many+i))
		}
		slices.Sort(alone)
		b.ReportMetric(ms(alone[len(alone)/2]), "alone-ms")

		c.ahead.Add(int64(time.Hour))
		for i := range many {
			_, err := c.forge.OpenPull(fmt.Sprintf("change-%04d", i), "An edit", labtest.TenantOwner)
			require.NoError(b, err)
		}
		b.ReportMetric(ms(shown(many+5)), "beside-ms")
		require.Empty(b, c.forge.Violations())
	}
}
