package daemon

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"berth/cmd/internal/labtest"
	"berth/examples/await"
	"berth/reconciler"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
	"berth/webhooks"
	"berth/webhooks/forge"
	"berth/webhooks/github"
	"berth/webhooks/journal"
)

// told is an estate that receives webhooks and has no daemon yet.
func told(t testing.TB, dir string) *estate {
	t.Helper()
	c := &Config{Estate: "lab"}
	c.Forge = &github.Config{Owner: "lab", Repository: "estate", Login: "berth-lab[bot]"}
	c.Repository.Directory = dir
	e := &estate{log: slog.New(slog.DiscardHandler), reg: prometheus.NewRegistry()}
	e.config.Store(c)
	require.NoError(t, e.openDeliveries(c))
	t.Cleanup(func() { require.NoError(t, e.deliveries.Close()) })
	return e
}

const (
	hookPush  = `{"ref":"refs/heads/main","repository":{"full_name":"lab/estate"},"sender":{"login":"ana"}}`
	hookAgain = `{"action":"rerequested","check_run":{"head_sha":"abc","pull_requests":[{"number":7}]},"repository":{"full_name":"lab/estate"}}`
	hookOther = `{"ref":"refs/heads/main","repository":{"full_name":"lab/other"}}`
)

func readDelivery(t testing.TB, id, event, body string) webhooks.Delivery {
	d, err := github.Webhook().Read(id, event, "application/json", []byte(body))
	require.NoError(t, err)
	return d
}

// An acknowledged delivery whose work is not done survives a crash, with every
// requester of a rerun. A delivery whose work is done is a duplicate when it is
// repeated.
func TestDeliveriesOutliveTheProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := told(t, dir)
	require.NoError(t, e.take(readDelivery(t, "a", "push", hookPush)))
	require.NoError(t, e.take(readDelivery(t, "b", "check_run", hookAgain)))
	require.NoError(t, e.take(readDelivery(t, "c", "ping", "{}")))
	require.ErrorIs(t, e.take(readDelivery(t, "d", "push", hookOther)), webhooks.ErrForeign)
	again := work{Do: reconciler.TaskPull, Pull: 7, Commit: "abc"}
	require.Equal(t, []work{{Do: reconciler.TaskEstate}, again}, e.deliveries.Pending())
	e.reconciling(reconciler.Item{Task: reconciler.TaskEstate})(false) // it failed, and is tried again

	after := told(t, dir)
	require.Equal(t, []work{{Do: reconciler.TaskEstate}, again}, after.deliveries.Pending())
	require.NoError(t, after.take(readDelivery(t, "a", "push", hookPush)), "its work is not done")
	after.reconciling(reconciler.Item{Task: reconciler.TaskEstate})(true)
	after.reconciling(reconciler.Item{Task: reconciler.TaskUnit})(true)
	require.Equal(t, []work{again}, after.deliveries.Pending())
	require.ErrorIs(t, after.take(readDelivery(t, "a", "push", hookPush)), webhooks.ErrKnown)
	after.reconciling(reconciler.Item{Task: reconciler.TaskPull, Pull: 8})(true)
	require.Equal(t, []work{again}, after.deliveries.Pending())
	// Checks are not shown again by being computed.
	after.deliveries.requestChecks(again)
	after.reconciling(reconciler.Item{Task: reconciler.TaskPull, Pull: 7})(true)
	require.Equal(t, []work{again}, after.deliveries.Pending())
	for _, check := range []string{plan.CheckValidate, plan.CheckPlan} {
		require.NotEmpty(t, after.deliveries.Pending())
		after.deliveries.reruns.reporting("abc", check)()
	}
	require.Empty(t, after.deliveries.Pending())
}

func TestDeliveriesAreCounted(t *testing.T) {
	t.Parallel()
	e := told(t, t.TempDir())
	require.NoError(t, e.take(readDelivery(t, "a", "push", hookPush)))
	reg := e.reg.(*prometheus.Registry)
	gauges := func() map[string]float64 {
		families, err := reg.Gather()
		require.NoError(t, err)
		out := map[string]float64{}
		for _, f := range families {
			if m := f.Metric[0]; m.Gauge != nil {
				out[f.GetName()] = m.Gauge.GetValue()
			}
		}
		return out
	}
	now := gauges()
	require.Equal(t, 1.0, now["berth_webhook_works"])
	require.Positive(t, now["berth_webhook_oldest_seconds"])
	require.Positive(t, now["berth_ref_unobserved_seconds"])
	e.reconciling(reconciler.Item{Task: reconciler.TaskEstate})(true)
	require.Equal(t, map[string]float64{"berth_webhook_works": 0, "berth_webhook_oldest_seconds": 0, "berth_ref_unobserved_seconds": 0},
		gauges())
	require.Equal(t, 1, testutil.CollectAndCount(e.deliveries.age))
}

// fakeLog is a forge's delivery log that counts its reads.
type fakeLog struct {
	log    []forge.Logged // the newest first
	bodies map[string]string
	read   int
	err    error
	bad    string      // the delivery that cannot be had
	cut    error       // of the list
	since  []time.Time // that it was asked for
}

func (l *fakeLog) Deliveries(_ context.Context, since time.Time) ([]forge.Logged, error) {
	l.since = append(l.since, since)
	return l.log, l.cut
}

func (l *fakeLog) Delivery(_ context.Context, entry forge.Logged) (webhooks.Delivery, error) {
	l.read++
	if l.bad != "" && entry.ID == l.bad {
		return webhooks.Delivery{}, errors.New("no such delivery")
	}
	if l.err != nil {
		return webhooks.Delivery{}, l.err
	}
	d, err := github.Webhook().Read(entry.ID, entry.Event, "application/json", []byte(l.bodies[entry.ID]))
	if err != nil {
		err = fmt.Errorf("%w: %w", forge.ErrUnread, err)
	}
	return d, err
}

// A delivery that is in the forge's log and not in the journal is accepted once, as if
// it had arrived. Known deliveries are not read.
func TestGapsAreFilledFromTheLog(t *testing.T) {
	t.Parallel()
	e := told(t, t.TempDir())
	require.NoError(t, e.take(readDelivery(t, "arrived", "push", hookPush)))
	e.reconciling(reconciler.Item{Task: reconciler.TaskEstate})(true)
	log := &fakeLog{
		bodies: map[string]string{"lost": hookAgain, "foreign": hookOther,
			"status": strings.ReplaceAll(hookPush, "heads/main", "heads/berth/status"), "elsewhere": hookPush, "odd": `{"ref":`},
		log: []forge.Logged{
			{ID: "odd", Event: "push"}, {ID: "elsewhere", Event: "push", Code: 200}, {ID: "star", Event: "star", IsIgnored: true},
			{ID: "lost", Event: "check_run", Code: 0}, {ID: "lost", Event: "check_run", Code: 502}, {ID: "status", Event: "push"},
			{ID: "foreign", Event: "push"}, {ID: "arrived", Event: "push", Code: 503}, {ID: "arrived", Event: "push", Code: 202},
		},
	}
	log.err = errors.New("the forge is down")
	require.ErrorContains(t, newGapFiller(e).fill(t.Context(), log, time.Time{}), "down")
	log.err, log.read = nil, 0
	require.NoError(t, newGapFiller(e).fill(t.Context(), log, time.Time{}))
	require.Equal(t, 5, log.read)
	require.ElementsMatch(t, []work{{Do: reconciler.TaskPull, Pull: 7, Commit: "abc"}, {Do: reconciler.TaskEstate},
		{Do: reconciler.TaskPulls}}, e.deliveries.Pending())
	require.Equal(t, 3.0, testutil.ToFloat64(e.deliveries.gaps.WithLabelValues("log")))
	require.NoError(t, newGapFiller(e).fill(t.Context(), log, time.Time{}))
	require.Equal(t, 5, log.read, "a delivery was read twice")
}

// Many missed deliveries cause one full reconciliation instead of single reads.
func TestManyGapsReconcileEverythingOnce(t *testing.T) {
	t.Parallel()
	e := told(t, t.TempDir())
	log := &fakeLog{}
	for i := range 500 {
		log.log = append(log.log, forge.Logged{ID: fmt.Sprint(i), Event: "pull_request"})
	}
	for range 2 {
		require.NoError(t, newGapFiller(e).fill(t.Context(), log, time.Time{}))
		require.Zero(t, log.read)
		require.ElementsMatch(t, []work{{Do: reconciler.TaskEstate}, {Do: reconciler.TaskPulls}}, e.deliveries.Pending())
		require.Equal(t, 500.0, testutil.ToFloat64(e.deliveries.gaps.WithLabelValues("log")))
	}
}

// A delivery that the forge cannot show does not delay the others, and ends in a
// full reconciliation.
func TestUnreadableDeliveryReconcilesEverything(t *testing.T) {
	t.Parallel()
	e := told(t, t.TempDir())
	g := newGapFiller(e)
	log := &fakeLog{bad: "bad", bodies: map[string]string{"good": hookAgain, "later": hookAgain},
		log: []forge.Logged{{ID: "good", Event: "check_run"}, {ID: "bad", Event: "push"}}}
	for range maxReadTries - 1 {
		require.ErrorContains(t, g.fill(t.Context(), log, time.Time{}), "no such delivery")
		require.Equal(t, []work{{Do: reconciler.TaskPull, Pull: 7, Commit: "abc"}}, e.deliveries.Pending())
	}
	require.NoError(t, g.fill(t.Context(), log, time.Time{}))
	require.ElementsMatch(t, []work{{Do: reconciler.TaskPull, Pull: 7, Commit: "abc"}, {Do: reconciler.TaskEstate},
		{Do: reconciler.TaskPulls}}, e.deliveries.Pending())
	require.Equal(t, 2.0, testutil.ToFloat64(e.deliveries.gaps.WithLabelValues("log")))
	read := log.read
	require.NoError(t, g.fill(t.Context(), log, time.Time{}))
	require.Equal(t, read, log.read)
	require.Empty(t, g.failed)
	// The daemon stops reading from a forge that fails, or asks it to wait.
	for i := range maxRead {
		log.log = append(log.log, forge.Logged{ID: fmt.Sprint(i), Event: "push"})
	}
	log.err, log.read = errors.New("down"), 0
	require.Error(t, g.fill(t.Context(), log, time.Time{}))
	require.Equal(t, maxReadFailure, log.read)
	log.err, log.read = &reconciler.RetryAfterError{At: time.Now()}, 0
	require.Error(t, g.fill(t.Context(), log, time.Time{}))
	require.Equal(t, 1, log.read)
}

// A log that is longer than it is worth to list is left behind.
func TestTooLongDeliveryLogReconcilesEverything(t *testing.T) {
	t.Parallel()
	e := told(t, t.TempDir())
	log := &fakeLog{cut: fmt.Errorf("read the log: %w", forge.ErrLogTooLong), bodies: map[string]string{"lost": hookAgain},
		log: []forge.Logged{{ID: "lost", Event: "check_run"}}}
	require.NoError(t, newGapFiller(e).fill(t.Context(), log, time.Time{}))
	require.ElementsMatch(t, []work{{Do: reconciler.TaskEstate}, {Do: reconciler.TaskPulls},
		{Do: reconciler.TaskPull, Pull: 7, Commit: "abc"}}, e.deliveries.Pending())
	log.cut = errors.New("another trouble")
	require.ErrorContains(t, newGapFiller(e).fill(t.Context(), log, time.Time{}), "another trouble")
}

// A full reconciliation does not find requests to rerun checks.
func TestManyRerunsAreReadOneByOne(t *testing.T) {
	t.Parallel()
	for _, asked := range []int{maxRead + 1, maxReadReruns + 7} {
		e := told(t, t.TempDir())
		log := &fakeLog{bodies: map[string]string{}}
		for i := range asked {
			event, action := "check_run", []string{"rerequested", "requested_action"}[i%2]
			body := strings.ReplaceAll(strings.ReplaceAll(hookAgain, "rerequested", action), "abc", fmt.Sprint("commit-", i))
			if i%5 == 4 {
				event, action = "check_suite", "rerequested"
				body = strings.ReplaceAll(strings.ReplaceAll(hookAgain, "check_run", "check_suite"), "abc", fmt.Sprint("commit-", i))
			}
			log.bodies[fmt.Sprint(i)] = body
			log.log = append(log.log, forge.Logged{ID: fmt.Sprint(i), Event: event, IsRerun: true},
				forge.Logged{ID: fmt.Sprint("run ", i), Event: "check_run"}, forge.Logged{ID: fmt.Sprint("push ", i), Event: "push"})
		}
		for range 2 {
			require.NoError(t, newGapFiller(e).fill(t.Context(), log, time.Time{}))
			require.Equal(t, min(asked, maxReadReruns), log.read)
			undone := e.deliveries.Pending()
			require.Len(t, undone, 2+min(asked, maxReadReruns))
			require.Contains(t, undone, work{Do: reconciler.TaskPull, Pull: 7, Commit: "commit-0"}, "the newest")
			require.Contains(t, undone, work{Do: reconciler.TaskEstate})
		}
	}
}

// A delivery older than the journal's memory is not lost if it arrived.
func TestOldArrivedDeliveryIsNotLost(t *testing.T) {
	t.Parallel()
	e := told(t, t.TempDir())
	log := &fakeLog{bodies: map[string]string{"failed": hookAgain}}
	began := time.Now().Add(-time.Second) // the journal stores milliseconds
	for i := range journal.DefaultIDs + 100 {
		_, err := e.deliveries.Take(fmt.Sprint(i), nil)
		require.NoError(t, err)
		if i < 200 {
			log.log = append(log.log, forge.Logged{ID: fmt.Sprint(i), Event: "push", Code: 202, When: began})
		}
	}
	require.False(t, e.deliveries.Knows("7"))
	log.log = append(log.log, forge.Logged{ID: "failed", Event: "check_run", Code: 503, When: began})
	require.NoError(t, newGapFiller(e).fill(t.Context(), log, time.Time{}))
	require.Equal(t, 1, log.read)
	require.Equal(t, []work{{Do: reconciler.TaskPull, Pull: 7, Commit: "abc"}}, e.deliveries.Pending())
}

// The log is read from the end of the last successful read, however old it is. A
// failed read is repeated from the same place.
func TestGapsAreFilledAtIntervals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		// run sweeps for so long.
		run := func(log *fakeLog, first, long time.Duration) (since []time.Duration) {
			e := told(t, dir)
			require.NoError(t, e.take(readDelivery(t, "after the pause", "push", hookPush)))
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), long)
			defer cancel()
			require.NoError(t, newGapFiller(e).run(ctx, func() forge.Log {
				if time.Since(began) < first {
					return nil // the estate is not up yet
				}
				return log
			}))
			synctest.Wait()
			for _, at := range log.since {
				since = append(since, at.Sub(began).Round(time.Second))
			}
			return since
		}
		const short = time.Second
		// The first read has no saved time; each later one starts at the saved time.
		require.Equal(t, []time.Duration{-gapFirst, 10*short - gapOverlap, gapInterval + 10*short - gapOverlap},
			run(&fakeLog{}, 10*short, 7*time.Minute))
		time.Sleep(5 * time.Hour) // it was stopped meanwhile; it had read it last 3 m 50 s before
		last := -5*time.Hour - 7*time.Minute + 2*gapInterval + 10*short
		broken := &fakeLog{cut: errors.New("it may not be read")}
		require.Equal(t, []time.Duration{last - gapOverlap, last - gapOverlap}, run(broken, short, 5*time.Minute))
		last -= 5 * time.Minute
		require.Equal(t, []time.Duration{last - gapOverlap}, run(&fakeLog{}, short, time.Minute))
		time.Sleep(10 * 24 * time.Hour)
		require.Equal(t, []time.Duration{short - gapMost}, run(&fakeLog{}, short, time.Minute))
		time.Sleep(stormDistance) // the debounce window is over
	})
}

// post delivers as a forge does.
func post(url, id, event, secret, body string) (int, error) {
	r, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-GitHub-Event", event)
	r.Header.Set("X-GitHub-Delivery", id)
	r.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	resp, err := poster.Do(r)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, errors.Join(err, resp.Body.Close())
}

// poster keeps as many connections as a forge may.
var poster = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

// attended is a served estate with its log.
type attended struct {
	*kept
	estates *Daemon
	said    *sink
	listen  string
	cancel  func()
	ended   chan error
	reread  chan os.Signal
}

// attend serves an estate until the test ends.
func attend(k *kept, listen string, change ...func(*estate)) *attended {
	k.Helper()
	s := &attended{kept: k, said: &sink{}, listen: listen, ended: make(chan error, 1), reread: make(chan os.Signal)}
	var err error
	s.estates, err = New([]string{k.path}, slog.New(slog.NewJSONHandler(s.said, nil)))
	require.NoError(k, err)
	for _, c := range change {
		c(s.only())
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = sync.OnceFunc(func() {
		cancel()
		require.NoError(k, <-s.ended)
	})
	go func() { s.ended <- s.estates.Serve(ctx, s.reread) }()
	k.Cleanup(s.cancel)
	k.Cleanup(func() {
		if k.Failed() {
			k.Log(s.said.String())
		}
	})
	s.eventually("ready", func() bool { return s.estates.ready() == nil })
	return s
}

func (s *attended) eventually(what string, ok func() bool) {
	s.Helper()
	await.True(s, what, ok, func() any { return lastLines(s.said) })
}

// only is its estate.
func (s *attended) only() *estate { return s.estates.all[0] }

// metric is the sum of a metric's values that carry a label of that value.
func (s *attended) metric(name, label string) (sum float64) {
	families, err := s.estates.reg.Gather()
	require.NoError(s, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetValue() == label {
					sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
				}
			}
		}
	}
	return sum
}

// A storm of deliveries causes a few reconciliations, and none is lost.
func TestStormOfDeliveries(t *testing.T) {
	t.Parallel()
	storm(t, 1_000)
}

func storm(t *testing.T, deliveries int) {
	listen, err := labtest.FreePort()
	require.NoError(t, err)
	s := attend(newKept(t, "north", listen, map[string]any{"listen": listen}), listen)
	before := s.metric("berth_reconcile_duration_seconds", "estate")
	body := strings.ReplaceAll(hookPush, "lab/estate", "example/north")
	const senders = 32
	var wg sync.WaitGroup
	var kept atomic.Int32
	began := time.Now()
	for n := range senders {
		wg.Go(func() {
			for i := n; i < deliveries; i += senders {
				code, err := post("http://"+listen+"/webhooks/github", fmt.Sprint("storm-", i), "push", "webhook secret of north", body)
				if err == nil && code == 202 {
					kept.Add(1)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, int32(deliveries), kept.Load())
	s.eventually("dealt with", func() bool { return len(s.only().deliveries.Pending()) == 0 })
	took := time.Since(began)
	looks := s.metric("berth_reconcile_duration_seconds", "estate") - before
	require.GreaterOrEqual(t, looks, 2.0)
	// TestDebouncerBoundsStorms has the larger distances, on its own clock.
	require.LessOrEqual(t, looks, 2+float64(took/distance))
	for i := range deliveries {
		require.True(t, s.only().deliveries.Knows(fmt.Sprint("storm-", i)))
	}
}

// Failed deliveries are found in the forge's log, by the forge's status of each.
func TestLostDeliveriesAreFound(t *testing.T) {
	t.Parallel()
	listen, err := labtest.FreePort()
	require.NoError(t, err)
	k := newKept(t, "north", listen, map[string]any{"listen": listen})
	s := attend(k, listen)
	// The daemon reads the log a second after its start, and minutes later again.
	s.eventually("the log is read", func() bool { return !s.only().deliveries.Mark().IsZero() })
	k.forge.Settle()
	k.forge.SetWebhook("http://127.0.0.1:1/webhooks/github") // no listener
	began := time.Now().Add(-time.Minute)
	commit := k.git.MustCommit(t, "main", gittest.Commit{Message: "words", Files: map[string]string{"README.md": "north\n"}})
	require.NoError(t, k.forge.Sync())
	k.forge.Settle()
	k.forge.SetWebhook("http://" + listen + "/webhooks/github")
	require.NotEqual(t, commit, s.only().mainCommit())
	e := s.only()
	require.NoError(t, newGapFiller(e).fill(t.Context(), e.running.Load().forge, began))
	s.eventually("looked at", func() bool { return e.mainCommit() == commit })
	require.Equal(t, 1.0, testutil.ToFloat64(e.deliveries.gaps.WithLabelValues("log")))
}

// Changes that only the loop found, without a webhook, are counted: they show that
// the webhook needs attention.
func TestLostPushesAreCounted(t *testing.T) {
	t.Parallel()
	listen, err := labtest.FreePort()
	require.NoError(t, err)
	k := newKept(t, "north", listen, map[string]any{"listen": listen, "poll": "200ms"})
	k.forge.SetWebhook("http://127.0.0.1:1/webhooks/github") // no listener
	s := attend(k, listen, func(e *estate) { e.webhookDelay = time.Millisecond })
	found := func() float64 { return s.metric("berth_webhook_gaps_total", "refs") }
	require.Zero(t, found(), "the state at the start counts as a gap")
	for n := range 2 {
		k.git.MustCommit(t, "main", gittest.Commit{Message: "words", Files: map[string]string{"README.md": fmt.Sprint("north ", n)}})
		s.eventually("counted", func() bool { return found() == float64(n+1) })
	}
	require.Contains(t, s.said.String(), "commit found by polling only")
}

// BenchmarkDeliveries sends ten thousand deliveries of 20 KB over HTTP, 32 at a
// time. It measures the wait for each answer, the total time, and the number of
// full reconciliations. The peer stores nothing: it checks the signature and
// answers.
func BenchmarkDeliveries(b *testing.B) {
	const deliveries, senders = 10_000, 32
	body := strings.TrimSuffix(hookPush, "}") + `,"pad":"` + strings.Repeat("x", 20_000) + `"}`
	storm := func(h http.Handler) (p99, total time.Duration) {
		srv := httptest.NewServer(h)
		defer srv.Close()
		var mu sync.Mutex
		var waits []time.Duration
		var wg sync.WaitGroup
		began := time.Now()
		for n := range senders {
			wg.Go(func() {
				for i := n; i < deliveries; i += senders {
					sent := time.Now()
					code, err := post(srv.URL, fmt.Sprint(i), "push", "s", body)
					wait := time.Since(sent)
					mu.Lock()
					waits = append(waits, wait)
					mu.Unlock()
					if err != nil || code != 202 {
						b.Errorf("%d, %v", code, err)
					}
				}
			})
		}
		wg.Wait()
		total = time.Since(began)
		slices.Sort(waits)
		return waits[len(waits)*99/100], total
	}
	for b.Loop() {
		e := told(b, filepath.Join(b.TempDir(), "cache"))
		var syncs atomic.Int32
		e.deliveries.debounce = newDebouncer(func(work) {
			syncs.Add(1)
			e.reconciling(reconciler.Item{Task: reconciler.TaskEstate})(true)
		})
		secrets := func() ([][]byte, error) { return [][]byte{[]byte("s")}, nil }
		h, err := webhooks.Handler(webhooks.Options{
			Format: github.Webhook(), Log: e.log, Receivers: []webhooks.Receiver{{Secrets: secrets, Take: e.take}},
		})
		require.NoError(b, err)
		p99, total := storm(h)
		await.True(b, "the end of the work", func() bool { return len(e.deliveries.Pending()) == 0 },
			func() any { return e.deliveries.Pending() })
		b.ReportMetric(float64(p99.Microseconds())/1000, "berth-p99-ms")
		b.ReportMetric(float64(total.Milliseconds()), "berth-all-ms")
		b.ReportMetric(float64(syncs.Load()), "syncs")
		p99, total = storm(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			text, err := io.ReadAll(r.Body)
			mac := hmac.New(sha256.New, []byte("s"))
			mac.Write(text)
			if err != nil || !hmac.Equal([]byte("sha256="+hex.EncodeToString(mac.Sum(nil))), []byte(r.Header.Get("X-Hub-Signature-256"))) {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			w.WriteHeader(http.StatusAccepted)
		}))
		b.ReportMetric(float64(p99.Microseconds())/1000, "bare-p99-ms")
		b.ReportMetric(float64(total.Milliseconds()), "bare-all-ms")
	}
}

// Serve ends although a silent client keeps its connection open.
func TestServeEndsWithASilentClient(t *testing.T) {
	t.Parallel()
	listen, err := labtest.FreePort()
	require.NoError(t, err)
	k := newKept(t, "north", listen, map[string]any{"listen": listen})
	s, err := New([]string{k.path}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, nil) }()
	await.True(t, "a daemon that is ready", func() bool { return s.ready() == nil }, func() any { return s.ready() })
	c, err := net.Dial("tcp", listen)
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Write([]byte("POST /webhooks/github HTTP/1.1\r\nHost:"))
	require.NoError(t, err)
	cancel()
	require.NoError(t, <-ended)
}
