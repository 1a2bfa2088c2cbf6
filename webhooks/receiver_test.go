package webhooks_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"berth/examples/await"
	"berth/webhooks"
	"berth/webhooks/github"
)

const secret = "it's a secret"

func sign(key string, body []byte) string {
	m := hmac.New(sha256.New, []byte(key))
	m.Write(body)
	return "sha256=" + hex.EncodeToString(m.Sum(nil))
}

// delivery is a request as GitHub would send it.
func delivery(event, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/webhooks/github", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-GitHub-Event", event)
	r.Header.Set("X-GitHub-Delivery", "d-1")
	r.Header.Set("X-Hub-Signature-256", sign(secret, []byte(body)))
	return r
}

type inbox struct {
	last   webhooks.Delivery
	events []webhooks.Event
	err    error
}

func (i *inbox) take(d webhooks.Delivery) error {
	if i.err == nil {
		i.last = d
		i.events = append(i.events, d.Events...)
	}
	return i.err
}

func newHandler(t testing.TB, in *inbox, change func(*webhooks.Options)) (http.Handler, *prometheus.Registry) {
	reg := prometheus.NewRegistry()
	o := webhooks.Options{
		Format:    github.Webhook(),
		Receivers: []webhooks.Receiver{{Secrets: staticSecrets([]byte(secret)), Take: in.take}},
		Log:       slog.New(slog.DiscardHandler), Registry: reg,
	}
	if change != nil {
		change(&o)
	}
	h, err := webhooks.Handler(o)
	require.NoError(t, err)
	return h, reg
}

const (
	pushMain = `{"ref":"refs/heads/main","repository":{"full_name":"lab/estate"}}`
	openPull = `{"action":"opened","number":7,"pull_request":{"number":7},"repository":{"full_name":"lab/estate"}}`
)

func TestDeliveryGetsItsCodeAndEvents(t *testing.T) {
	unread := []webhooks.Event{{Kind: webhooks.Unread}}
	comment := func(action, pull, body, author string) string {
		return fmt.Sprintf(`{"action":%q,"issue":{%s"number":7},"comment":{"body":"%s","user":{"login":"ana","type":%q}},"repository":{"full_name":"lab/estate"}}`, action, pull, body, author)
	}
	group := func(action, ref string) string {
		return fmt.Sprintf(`{"action":%q,"merge_group":{"head_sha":"abc","head_ref":%q},"repository":{"full_name":"lab/estate"}}`, action,
			ref)
	}
	cases := []struct {
		name, event, body string
		change            func(*http.Request)
		code              int
		result            string // label of the counter
		woken             []webhooks.Event
	}{
		{name: "push", event: "push", body: pushMain, code: 202, result: "push queued",
			woken: []webhooks.Event{{Kind: webhooks.Push, Repo: "lab/estate", Ref: "refs/heads/main"}}},
		{name: "pull request", event: "pull_request", body: openPull, code: 202, result: "pull_request queued",
			woken: []webhooks.Event{{Kind: webhooks.PullRequest, Repo: "lab/estate", Number: 7}}},
		{name: "an approval", event: "pull_request_review", code: 202, result: "pull_request_review queued",
			body:  `{"action":"submitted","review":{"state":"approved"},"pull_request":{"number":7,"head":{"repo":{"full_name":"somebody/fork"}}},"repository":{"full_name":"lab/estate"}}`,
			woken: []webhooks.Event{{Kind: webhooks.PullRequest, Repo: "lab/estate", Number: 7}}},
		{name: "a dismissed approval", event: "pull_request_review", code: 202, result: "pull_request_review queued",
			body:  `{"action":"dismissed","review":{"state":"dismissed"},"pull_request":{"number":7},"repository":{"full_name":"lab/estate"}}`,
			woken: []webhooks.Event{{Kind: webhooks.PullRequest, Repo: "lab/estate", Number: 7}}},
		{name: "a comment on a line", event: "pull_request_review_comment", code: 202, result: "other ignored",
			body: `{"action":"created","pull_request":{"number":7},"repository":{"full_name":"lab/estate"}}`},
		{name: "rerun of a check", event: "check_run", code: 202, result: "check_run queued",
			body: `{"action":"rerequested","check_run":{"head_sha":"abc","pull_requests":[{"number":7},{"number":9}]},"repository":{"full_name":"lab/estate"}}`,
			woken: []webhooks.Event{
				{Kind: webhooks.Rerequest, Repo: "lab/estate", Number: 7, Commit: "abc"},
				{Kind: webhooks.Rerequest, Repo: "lab/estate", Number: 9, Commit: "abc"}}},
		{name: "rerun of a suite on a fork", event: "check_suite", code: 202, result: "check_suite queued",
			body:  `{"action":"rerequested","check_suite":{"head_sha":"abc","pull_requests":[]},"repository":{"full_name":"lab/estate"}}`,
			woken: []webhooks.Event{{Kind: webhooks.Rerequest, Repo: "lab/estate", Commit: "abc"}}},
		{name: "our own check", event: "check_run", code: 202, result: "check_run ignored",
			body: `{"action":"completed","check_run":{"head_sha":"abc"},"repository":{"full_name":"lab/estate"}}`},
		{name: "our own push", event: "push", code: 202, result: "push ignored",
			body: `{"ref":"refs/heads/berth/status","repository":{"full_name":"lab/estate"}}`},
		{name: "a tag", event: "push", code: 202, result: "push ignored",
			body: `{"ref":"refs/tags/v1","repository":{"full_name":"lab/estate"}}`},
		{name: "merge queue", event: "push", code: 202, result: "push ignored",
			body: `{"ref":"refs/heads/gh-readonly-queue/main/pr-1","repository":{"full_name":"lab/estate"}}`},
		{name: "a label", event: "pull_request", code: 202, result: "pull_request ignored",
			body: `{"action":"labeled","number":7,"pull_request":{"number":7},"repository":{"full_name":"lab/estate"}}`},
		{name: "an unknown action", event: "pull_request", code: 202, result: "pull_request queued",
			body:  `{"action":"transmuted","number":7,"pull_request":{"number":7},"repository":{"full_name":"lab/estate"}}`,
			woken: []webhooks.Event{{Kind: webhooks.PullRequest, Repo: "lab/estate", Number: 7}}},
		{name: "a button of a check", event: "check_run", code: 202, result: "check_run queued",
			body:  `{"action":"requested_action","requested_action":{"identifier":"plan"},"check_run":{"head_sha":"abc","pull_requests":[{"number":7}]},"repository":{"full_name":"lab/estate"}}`,
			woken: []webhooks.Event{{Kind: webhooks.Rerequest, Repo: "lab/estate", Number: 7, Commit: "abc"}}},
		{name: "a check of many pull requests", event: "check_run", code: 202, result: "check_run queued",
			body: `{"action":"rerequested","check_run":{"head_sha":"abc","pull_requests":[` + strings.Repeat(`{"number":7},`, 20) +
				`{"number":8}]},"repository":{"full_name":"lab/estate"}}`,
			woken: []webhooks.Event{{Kind: webhooks.Rerequest, Repo: "lab/estate", Commit: "abc"}}},
		{name: "a command", event: "issue_comment", code: 202, result: "issue_comment queued",
			body:  comment("created", `"pull_request":{"url":"x"},`, `/berth plan\r\nplease`, "User"),
			woken: []webhooks.Event{{Kind: webhooks.Command, Repo: "lab/estate", Number: 7}}},
		{name: "a first line that begins like a command", event: "issue_comment", code: 202, result: "issue_comment queued",
			body:  comment("created", `"pull_request":{"url":"x"},`, ` /berthing`, "User"),
			woken: []webhooks.Event{{Kind: webhooks.Command, Repo: "lab/estate", Number: 7}}},
		{name: "a command on an issue", event: "issue_comment", code: 202, result: "issue_comment ignored",
			body: comment("created", "", "/berth plan", "User")},
		{name: "an edited command", event: "issue_comment", code: 202, result: "issue_comment queued",
			body:  comment("edited", `"pull_request":{"url":"x"},`, "/berth plan", "User"),
			woken: []webhooks.Event{{Kind: webhooks.Command, Repo: "lab/estate", Number: 7}}},
		{name: "a deleted command", event: "issue_comment", code: 202, result: "issue_comment ignored",
			body: comment("deleted", `"pull_request":{"url":"x"},`, "/berth plan", "User")},
		{name: "a command on the second line", event: "issue_comment", code: 202, result: "issue_comment ignored",
			body: comment("created", `"pull_request":{"url":"x"},`, `do\n/berth plan`, "User")},
		{name: "a command by a bot", event: "issue_comment", code: 202, result: "issue_comment ignored",
			body: comment("created", `"pull_request":{"url":"x"},`, "/berth plan", "Bot")},
		{name: "a merge group", event: "merge_group", code: 202, result: "merge_group queued",
			body: group("checks_requested", "refs/heads/gh-readonly-queue/main/pr-1-abc"),
			woken: []webhooks.Event{{Kind: webhooks.MergeGroup, Repo: "lab/estate", Ref: "refs/heads/gh-readonly-queue/main/pr-1-abc",
				Commit: "abc"}}},
		{name: "a removed merge group", event: "merge_group", code: 202, result: "merge_group queued",
			body: group("destroyed", "refs/heads/gh-readonly-queue/main/pr-1-abc"),
			woken: []webhooks.Event{{Kind: webhooks.MergeGroup, Repo: "lab/estate", Ref: "refs/heads/gh-readonly-queue/main/pr-1-abc",
				Commit: "abc", Gone: true}}},
		{name: "a merge group of another ref", event: "merge_group", code: 202, result: "merge_group unread",
			body: group("checks_requested", "refs/heads/main"), woken: unread},
		{name: "ping", event: "ping", body: `{"zen":"Keep it logically awesome."}`, code: 202, result: "ping ignored"},
		{name: "an event that Berth does not read", event: "star", body: `{}`, code: 202, result: "other ignored"},
		{name: "no event name", event: "", body: `{}`, code: 202, result: "unknown ignored"},

		{name: "authentic, not JSON", event: "push", body: `{"ref":`, code: 202, result: "push unread", woken: unread},
		{name: "authentic, wrong shape", event: "push", body: `[[[]]]`, code: 202, result: "push unread", woken: unread},
		{name: "authentic, empty", event: "push", body: ``, code: 202, result: "push unread", woken: unread},
		{name: "authentic, without repository", event: "pull_request", body: `{"number":1}`, code: 202, result: "pull_request unread",
			woken: unread},
		{name: "authentic, a review of nothing", event: "pull_request_review",
			body: `{"action":"submitted","repository":{"full_name":"lab/estate"}}`, code: 202, result: "pull_request_review unread",
			woken: unread},
		{name: "one bad time", event: "check_run", code: 202, result: "check_run unread", woken: unread,
			body: `{"action":"rerequested","check_run":{"head_sha":"abc","started_at":"2018-04-25 20:42:10"},"repository":{"full_name":"lab/estate"}}`},
		{name: "form encoded", event: "push", body: `payload=%7B%7D`, code: 202, result: "push unread", woken: unread,
			change: func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") }},
		{name: "too large to parse", event: "push", body: `{"pad":"` + strings.Repeat("x", 5000) + `"}`, code: 202, result: "push unread",
			woken: unread},

		{name: "no signature", event: "push", body: pushMain, code: 401, result: "unknown forged",
			change: func(r *http.Request) { r.Header.Del("X-Hub-Signature-256") }},
		{name: "wrong secret", event: "push", body: pushMain, code: 401, result: "unknown forged",
			change: func(r *http.Request) { r.Header.Set("X-Hub-Signature-256", sign("guess", []byte(pushMain))) }},
		{name: "empty secret", event: "push", body: pushMain, code: 401, result: "unknown forged",
			change: func(r *http.Request) { r.Header.Set("X-Hub-Signature-256", sign("", []byte(pushMain))) }},
		{name: "a forged approval", event: "pull_request_review", body: openPull, code: 401, result: "unknown forged",
			change: func(r *http.Request) { r.Header.Set("X-Hub-Signature-256", sign("guess", []byte(openPull))) }},
		{name: "another body's signature", event: "push", body: pushMain, code: 401, result: "unknown forged",
			change: func(r *http.Request) { r.Header.Set("X-Hub-Signature-256", sign(secret, []byte(openPull))) }},
		{name: "SHA-1 only", event: "push", body: pushMain, code: 401, result: "unknown forged", change: func(r *http.Request) {
			m := hmac.New(sha1.New, []byte(secret))
			m.Write([]byte(pushMain))
			r.Header.Del("X-Hub-Signature-256")
			r.Header.Set("X-Hub-Signature", "sha1="+hex.EncodeToString(m.Sum(nil)))
		}},
		{name: "SHA-1 in the new header", event: "push", body: pushMain, code: 401, result: "unknown forged",
			change: func(r *http.Request) {
				m := hmac.New(sha1.New, []byte(secret))
				m.Write([]byte(pushMain))
				r.Header.Set("X-Hub-Signature-256", "sha1="+hex.EncodeToString(m.Sum(nil)))
			}},
		{name: "two signatures", event: "push", body: pushMain, code: 401, result: "unknown forged",
			change: func(r *http.Request) { r.Header.Add("X-Hub-Signature-256", "sha256=00") }},
		{name: "not hex", event: "push", body: pushMain, code: 401, result: "unknown forged",
			change: func(r *http.Request) { r.Header.Set("X-Hub-Signature-256", "sha256="+strings.Repeat("z", 64)) }},
		{name: "huge and forged", event: "push", body: strings.Repeat("x", 9000), code: 413, result: "unknown too_large"},
		{name: "huge, of unknown length", event: "push", body: strings.Repeat("x", 9000), code: 413, result: "unknown too_large",
			change: func(r *http.Request) { r.ContentLength = -1 }},
		{name: "GET", event: "push", body: pushMain, code: 405, result: "unknown method",
			change: func(r *http.Request) { r.Method = http.MethodGet }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			in := &inbox{}
			h, reg := newHandler(t, in, func(o *webhooks.Options) { o.MaxBody, o.MaxParse = 8000, 2000 })
			r := delivery(c.event, c.body)
			if c.change != nil {
				c.change(r)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			require.Equal(t, c.code, w.Code)
			require.Empty(t, w.Body.String(), "an answer is its code and nothing else")
			require.Empty(t, cmp.Diff(c.woken, in.events))
			event, result, _ := strings.Cut(c.result, " ")
			require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(fmt.Sprintf(`
# HELP berth_webhook_deliveries_total Webhook deliveries, by event and result.
# TYPE berth_webhook_deliveries_total counter
berth_webhook_deliveries_total{event=%q,result=%q} 1
`, event, result))))
		})
	}
}

func TestForgedBodyIsNotParsed(t *testing.T) {
	in := &inbox{}
	var log bytes.Buffer
	h, _ := newHandler(t, in, func(o *webhooks.Options) {
		o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	r := delivery("push", `{"ref":"never look at this`)
	r.Header.Set("X-Hub-Signature-256", sign("guess", []byte("x")))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Equal(t, 401, w.Code)
	require.Empty(t, in.events)
	require.Empty(t, log.String(), "a stranger must not be able to write our log")
}

func TestBothSecretsAreValidWhileOneIsReplaced(t *testing.T) {
	for _, key := range []string{"old secret", "new secret"} {
		in := &inbox{}
		h, _ := newHandler(t, in, func(o *webhooks.Options) {
			o.Receivers[0].Secrets = staticSecrets([]byte("new secret"), []byte("old secret"))
		})
		r := delivery("push", pushMain)
		r.Header.Set("X-Hub-Signature-256", sign(key, []byte(pushMain)))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, 202, w.Code, key)
		require.Len(t, in.events, 1)
	}
}

// counted returns how many deliveries of an event had a result.
func counted(t *testing.T, reg *prometheus.Registry, event, result string) float64 {
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if l := m.GetLabel(); len(l) == 2 && l[0].GetValue() == event && l[1].GetValue() == result {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func TestSecretIsReadForEachDelivery(t *testing.T) {
	in, log := &inbox{}, &bytes.Buffer{}
	now, missing := "old secret", error(nil)
	h, reg := newHandler(t, in, func(o *webhooks.Options) {
		o.Receivers[0].Secrets = func() ([][]byte, error) {
			if missing != nil {
				return nil, missing
			}
			return [][]byte{[]byte(now)}, nil
		}
		o.Log = slog.New(slog.NewTextHandler(log, nil))
	})
	deliver := func(key string) int {
		r := delivery("push", pushMain)
		r.Header.Set("X-Hub-Signature-256", sign(key, []byte(pushMain)))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	require.Equal(t, 202, deliver("old secret"))
	now = "new secret"
	require.Equal(t, 401, deliver("old secret"), "the old secret is invalid after a replacement")
	require.Equal(t, 202, deliver("new secret"))

	now = " "
	require.Equal(t, 503, deliver(" "), "an empty secret is none")
	require.Empty(t, in.events[2:])
	now, missing = "new secret", errors.New("no such file")
	for range 5 {
		require.Equal(t, 503, deliver("new secret"))
	}
	require.Equal(t, 1, strings.Count(log.String(), "\n"), "a stranger must not be able to write our log")
	require.NotContains(t, log.String(), "new secret")
	missing = nil
	require.Equal(t, 202, deliver("new secret"))
	require.Contains(t, log.String(), "again")
	require.Equal(t, 6.0, counted(t, reg, "unknown", "no_secret"))
}

// While one of two secrets is unreadable, the other is valid. A delivery that the
// other did not sign may be signed by the unreadable one.
func TestUnreadableSecretRefusesOnlyItsOwnDeliveries(t *testing.T) {
	in, log := &inbox{}, &bytes.Buffer{}
	h, _ := newHandler(t, in, func(o *webhooks.Options) {
		o.Receivers[0].Secrets = func() ([][]byte, error) { return [][]byte{[]byte(secret)}, errors.New("no such file") }
		o.Log = slog.New(slog.NewTextHandler(log, nil))
	})
	for key, code := range map[string]int{secret: 202, "the other": 503} {
		r := delivery("push", pushMain)
		r.Header.Set("X-Hub-Signature-256", sign(key, []byte(pushMain)))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, code, w.Code, key)
	}
	require.Len(t, in.events, 1)
	require.Equal(t, 1, strings.Count(log.String(), "no such file"))
}

func TestForeignEventIsAccepted(t *testing.T) {
	in := &inbox{err: fmt.Errorf("elsewhere: %w", webhooks.ErrForeign)}
	h, reg := newHandler(t, in, nil)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, delivery("push", pushMain))
	require.Equal(t, 202, w.Code, "redelivering it would help nobody")
	require.Equal(t, 1.0, counted(t, reg, "push", "foreign"))
}

func TestFullQueueAnswers503(t *testing.T) {
	in := &inbox{err: webhooks.ErrFull}
	h, _ := newHandler(t, in, nil)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, delivery("push", pushMain))
	require.Equal(t, 503, w.Code)
	require.NotEmpty(t, w.Header().Get("Retry-After"))
}

func TestHandlerRefusesIncompleteOptions(t *testing.T) {
	of := func(secrets func() ([][]byte, error), take func(webhooks.Delivery) error) error {
		well := webhooks.Receiver{Secrets: staticSecrets([]byte("a")), Take: (&inbox{}).take}
		_, err := webhooks.Handler(webhooks.Options{Format: github.Webhook(), Log: slog.New(slog.DiscardHandler),
			Receivers: []webhooks.Receiver{well, {Secrets: secrets, Take: take}}})
		return err
	}
	take := (&inbox{}).take
	for name, secrets := range map[string][][]byte{
		"none": nil, "empty": {{}}, "nil": {nil}, "blank": {[]byte(" \n")}, "one of two empty": {[]byte("a"), {}},
	} {
		require.ErrorContains(t, of(staticSecrets(secrets...), take), "secret", name)
	}
	require.ErrorContains(t, of(nil, take), "Secrets")
	require.ErrorContains(t, of(func() ([][]byte, error) { return nil, errors.New("no such file") }, take), "no such file")
	require.NoError(t, of(staticSecrets([]byte("b")), take))
	require.Error(t, of(staticSecrets([]byte("b")), nil))
	_, err := webhooks.Handler(webhooks.Options{Format: github.Webhook(), Log: slog.New(slog.DiscardHandler)})
	require.Error(t, err)
}

// A delivery reaches only the receivers whose secret signed it, whichever
// repository it names.
func TestDeliveryReachesOnlyReceiversWhoseSecretSignedIt(t *testing.T) {
	var physics, biology, twin inbox
	var lost error
	receivers := []webhooks.Receiver{
		{Estate: "physics", Secrets: staticSecrets([]byte(secret)), Take: physics.take},
		{Estate: "biology", Secrets: func() ([][]byte, error) {
			if lost != nil {
				return [][]byte{[]byte("new")}, lost
			}
			return [][]byte{[]byte("old"), []byte("new")}, nil
		}, Take: biology.take},
		{Estate: "twin", Secrets: staticSecrets([]byte(secret)), Take: twin.take},
	}
	h, _ := newHandler(t, &inbox{}, func(o *webhooks.Options) { o.Receivers = receivers })
	send := func(key string) (int, [3]int) {
		physics.events, biology.events, twin.events = nil, nil, nil
		r := delivery("push", pushMain)
		r.Header.Set("X-Hub-Signature-256", sign(key, []byte(pushMain)))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code, [3]int{len(physics.events), len(biology.events), len(twin.events)}
	}
	expect := func(key string, code int, woken [3]int) {
		t.Helper()
		gotCode, got := send(key)
		require.Equal(t, code, gotCode)
		require.Equal(t, woken, got)
	}
	expect("old", 202, [3]int{0, 1, 0})
	expect("new", 202, [3]int{0, 1, 0})
	expect(secret, 202, [3]int{1, 0, 1})
	expect("nobody's", 401, [3]int{})

	twin.err = webhooks.ErrForeign
	expect(secret, 202, [3]int{1, 0, 0})
	twin.err = errors.New("not up")
	expect(secret, 503, [3]int{1, 0, 0})

	// A receiver that has lost its secret does not affect the others; a delivery that may be its own has to
	// be sent again.
	lost = errors.New("no such file")
	twin.err = nil
	expect(secret, 202, [3]int{1, 0, 1})
	expect("new", 202, [3]int{0, 1, 0})
	expect("old", 503, [3]int{})
}

// The handler gives up on a connection that stops sending, and serves the next one.
func TestSlowBodyTimesOut(t *testing.T) {
	t.Parallel()
	in := &inbox{}
	h, _ := newHandler(t, in, func(o *webhooks.Options) { o.Timeout = 50 * time.Millisecond })
	done := make(chan int, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &codeWriter{ResponseWriter: w}
		h.ServeHTTP(rec, r)
		done <- rec.code
	}))
	defer srv.Close()
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	fmt.Fprintf(c, "POST /webhooks/github HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\nX-Hub-Signature-256: %s\r\n\r\n{",
		sign(secret, nil))
	require.Equal(t, 408, await.Receive(t, "an answer without a body", done, func() any { return "none" }))
	require.Empty(t, in.events)
}

type codeWriter struct {
	http.ResponseWriter
	code int
}

func (c *codeWriter) WriteHeader(code int) { c.code = code; c.ResponseWriter.WriteHeader(code) }

// Unwrap lets http.ResponseController reach the connection.
func (c *codeWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// Large bodies that stop arriving fill all slots. The next large body waits for
// Timeout and gets a 503; small bodies are served meanwhile.
func TestSmallBodiesPassWhileLargeOnesWait(t *testing.T) {
	t.Parallel()
	const places = 32
	long := strings.Repeat("x", 65<<10)
	h, _ := newHandler(t, &inbox{}, func(o *webhooks.Options) { o.Timeout = 50 * time.Millisecond })
	started, release := make(chan struct{}, places), make(chan struct{})
	finished := make(chan struct{}, places)
	for range places {
		r := delivery("push", pushMain)
		r.Body = io.NopCloser(io.MultiReader(strings.NewReader(long), &stuck{started: started, release: release}))
		r.ContentLength = -1
		go func() {
			h.ServeHTTP(httptest.NewRecorder(), r)
			finished <- struct{}{}
		}()
	}
	for range places {
		<-started
	}
	code := func(body string) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, delivery("push", body))
		return w.Code
	}
	require.Equal(t, 503, code(long))
	require.Equal(t, 202, code(pushMain))
	close(release)
	for range places {
		<-finished
	}
	require.Equal(t, 202, code(long))
}

// A client that announces a signed body and sends nothing, or stops, delays no
// delivery.
func TestIdleConnectionsHoldNoSlot(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		begin string
		many  int
	}{"nothing": {"", 1200}, "a little": {"{", 400}} {
		in := &inbox{}
		h, _ := newHandler(t, in, func(o *webhooks.Options) { o.Timeout = await.Limit })
		var arrived sync.WaitGroup
		arrived.Add(c.many)
		var idle atomic.Int32
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ContentLength == 100 {
				idle.Add(1)
				defer idle.Add(-1)
				arrived.Done()
			}
			h.ServeHTTP(w, r)
		}))
		for range c.many {
			conn, err := net.Dial("tcp", srv.Listener.Addr().String())
			require.NoError(t, err)
			defer conn.Close()
			fmt.Fprintf(conn, "POST /webhooks/github HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\nX-Hub-Signature-256: %s\r\n\r\n%s",
				sign("guess", nil), c.begin)
		}
		arrived.Wait()
		for n := range 50 {
			r := delivery("push", pushMain)
			real, err := http.NewRequest("POST", srv.URL, r.Body)
			require.NoError(t, err)
			real.Header = r.Header
			resp, err := srv.Client().Do(real)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, 202, resp.StatusCode, "%s: delivery %d", name, n)
		}
		require.EqualValues(t, c.many, idle.Load(), "they are all still there")
		srv.CloseClientConnections()
		srv.Close()
	}
}

// stuck is a body that sends nothing until it is released.
type stuck struct{ started, release chan struct{} }

func (s *stuck) Read([]byte) (int, error) {
	select {
	case s.started <- struct{}{}:
	default:
	}
	<-s.release
	return 0, io.EOF
}

func TestMuxServesHealthAndWebhooks(t *testing.T) {
	in := &inbox{}
	h, reg := newHandler(t, in, nil)
	var notReady error
	mux := webhooks.Mux(webhooks.MuxOptions{
		Webhooks: map[string]http.Handler{"github": h}, Metrics: reg, Ready: func() error { return notReady },
		Log: slog.New(slog.DiscardHandler),
	})
	get := func(method, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		return w
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, delivery("push", pushMain))
	require.Equal(t, 202, w.Code)
	require.Len(t, in.events, 1)

	require.Equal(t, 200, get("GET", "/health").Code)
	require.Equal(t, 200, get("GET", "/readyz").Code)
	notReady = fmt.Errorf("main has not been read yet")
	w = get("GET", "/readyz")
	require.Equal(t, 503, w.Code)
	require.Equal(t, "main has not been read yet\n", w.Body.String())
	require.Equal(t, 200, get("GET", "/health").Code, "not ready is not dead")
	require.Contains(t, get("GET", "/metrics").Body.String(), `berth_webhook_deliveries_total{event="push",result="queued"} 1`)
	require.Equal(t, 405, get("GET", "/webhooks/github").Code)
	require.Equal(t, 405, get("POST", "/metrics").Code)
	require.Equal(t, 404, get("GET", "/").Code)
}

func TestMuxServesEachEstatesAPI(t *testing.T) {
	asked := ""
	api := func(name string) http.Handler {
		return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked = name + " " + r.URL.EscapedPath() })
	}
	mux := webhooks.Mux(webhooks.MuxOptions{
		Estates: map[string]http.Handler{"lab": api("lab"), "lab-2": api("lab-2")},
		Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	})
	for path, want := range map[string]string{
		"/estates/lab/api/v1/catalog":         "lab /api/v1/catalog",
		"/estates/lab-2/api/v1/catalog?limit": "lab-2 /api/v1/catalog",
		"/estates/lab/api/v1//a/..%2Fb":       "lab /api/v1//a/..%2Fb",
		"/estates/other/api/v1/catalog":       "",
		"/estates/lab/metrics":                "",
		"/estates/lab/../lab-2/api/v1":        "",
		"/api/v1/catalog":                     "",
		"/estates/l%61b/api/v1/catalog":       "",
	} {
		asked = ""
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		require.Equal(t, want, asked, path)
	}
}

// The handler answers any request with one of its codes, and delivers only what is
// signed.
func FuzzHandler(f *testing.F) {
	f.Add("push", "application/json", []byte(pushMain), true)
	f.Add("pull_request", "application/json", []byte(openPull), true)
	f.Add("check_run", "application/json", []byte(`{"action":"rerequested","check_run":{"pull_requests":[null]}}`), true)
	f.Add("check_suite", "application/json; charset=utf-8", []byte(`{"action":"rerequested"}`), true)
	f.Add("push", "application/json", []byte(pushMain), false)
	f.Add("issue_comment", "application/json",
		[]byte(`{"action":"created","issue":{"number":7,"pull_request":{}},"comment":{"body":"/berth"}}`), true)
	f.Add("merge_group", "application/json", []byte(`{"action":"destroyed","merge_group":null}`), true)
	f.Add("x\n", "", []byte(strings.Repeat("[", 4000)), true)
	f.Fuzz(func(t *testing.T, event, media string, body []byte, signed bool) {
		in := &inbox{}
		h, _ := newHandler(t, in, func(o *webhooks.Options) { o.MaxBody, o.MaxParse = 1<<16, 1<<15 })
		r := delivery("", "")
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		r.Header.Set("X-GitHub-Event", event)
		r.Header.Set("Content-Type", media)
		key := secret
		if !signed {
			key = "guess"
		}
		r.Header.Set("X-Hub-Signature-256", sign(key, body))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		switch w.Code {
		case 202:
			require.True(t, signed)
		case 401:
			require.False(t, signed)
		case 413:
			require.Greater(t, len(body), 1<<16)
		default:
			t.Fatalf("answered %d", w.Code)
		}
		if w.Code != 202 {
			require.Empty(t, in.events)
		}
		for _, e := range in.events {
			require.NotEqual(t, webhooks.Kind(""), e.Kind)
			require.False(t, strings.HasPrefix(e.Ref, "refs/heads/berth/"))
		}
	})
}

func BenchmarkHandler(b *testing.B) {
	h, _ := newHandler(b, &inbox{}, func(o *webhooks.Options) { o.Receivers[0].Take = func(webhooks.Delivery) error { return nil } })
	body := `{"ref":"refs/heads/main","repository":{"full_name":"lab/estate"},"pad":"` + strings.Repeat("x", 20000) + `"}`
	sig := sign(secret, []byte(body))
	for b.Loop() {
		r := httptest.NewRequest(http.MethodPost, "/webhooks/github", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-GitHub-Event", "push")
		r.Header.Set("X-Hub-Signature-256", sig)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != 202 {
			b.Fatal(w.Code)
		}
	}
}

// staticSecrets are secrets that never change.
func staticSecrets(secrets ...[]byte) func() ([][]byte, error) {
	return func() ([][]byte, error) { return secrets, nil }
}
