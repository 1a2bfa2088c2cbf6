package webhooks

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/go-github/v62/github"
	"github.com/prometheus/client_golang/prometheus"
)

// ErrFull is what Take returns when it can take no more for now: the forge gets
// a 503, so that the delivery shows as failed there and can be had again.
var ErrFull = errors.New("queue is full")

// What Take returns for a delivery that is well taken, and wakes nobody.
var (
	ErrForeign = errors.New("another repository's") // an organisation's hook tells of all of them
	ErrOwn     = errors.New("caused by Berth itself")
	ErrKnown   = errors.New("delivered before, and dealt with")
)

// StaticSecrets are secrets that never change, for a Receiver.
func StaticSecrets(secrets ...[]byte) func() ([][]byte, error) {
	return func() ([][]byte, error) { return secrets, nil }
}

// Limits and defaults of a Handler.
const (
	DefaultMaxBody  = 25 << 20 // what GitHub sends at most
	DefaultMaxParse = 1 << 20
	DefaultTimeout  = 5 * time.Second // GitHub waits 10 s
	begins          = 64 << 10        // of a body, without a place
	maxInFlight     = 32              // places for what is longer: 32 MiB at most
	maxWaiting      = 1024            // deliveries of which something came: 64 MiB at most
)

// Receiver is one of those that deliveries are for. It is woken by those alone
// that one of its own secrets has signed.
type Receiver struct {
	Estate string // its name, for logs
	// Secrets are asked for with each delivery, so that one that was replaced
	// counts at once. All are tried; two of them while one is being replaced.
	// None may be empty. It must be safe for concurrent use. An error tells that not
	// all could be had: those that come with it count, and what none of them has
	// signed is a 503, unless it is another receiver's.
	Secrets func() ([][]byte, error)
	// Take keeps a delivery, which may have no events, and wakes somebody. Once it
	// returns nil the delivery must not get lost any more. ErrForeign, ErrOwn and
	// ErrKnown are a 202 too; any other error is a 503.
	Take func(Delivery) error
}

// Options of a Handler.
type Options struct {
	Receivers []Receiver
	// MaxBody bounds what is read of a delivery, in bytes; a larger one gets 413.
	MaxBody int64
	// MaxParse bounds what is kept of it. The signature of a larger one is still
	// checked, over a stream, and it wakes as Unread.
	MaxParse int64
	// Timeout bounds how long a body may take to arrive, and how long a delivery
	// may wait until there is room for it.
	Timeout time.Duration

	Log      *slog.Logger
	Registry prometheus.Registerer // for berth_webhook_deliveries_total; nil: not registered
}

// handler is POST /webhooks/github.
type handler struct {
	Options
	inFlight   chan struct{} // places for bodies beyond their begin
	waiting    chan struct{}
	secretless []atomic.Bool // by receiver: not all of its secrets could be had last time
	deliveries *prometheus.CounterVec
}

// What became of a delivery: the values of the label "result".
const (
	resultQueued   = "queued"
	resultIgnored  = "ignored"   // authentic, and of no interest
	resultUnread   = "unread"    // authentic, and not understood
	resultForeign  = "foreign"   // authentic, of another repository
	resultOwn      = "own"       // authentic, and caused by Berth itself
	resultKnown    = "known"     // authentic, and dealt with before
	resultFull     = "full"      // authentic, and could not be kept
	resultForged   = "forged"    // no or a wrong signature
	resultTooLarge = "too_large" // beyond MaxBody
	resultBroken   = "broken"    // the body did not arrive
	resultBusy     = "busy"      // too many at once; not read
	resultSecret   = "no_secret" // there is nothing to check a signature with
	resultMethod   = "method"    // not a POST
)

// Handler answers a forge's deliveries:
//
//	202  authentic (also if it is of no interest or cannot be read)
//	401  no X-Hub-Signature-256 that fits; nothing was parsed
//	405  not a POST
//	408  the body did not arrive in time
//	413  larger than MaxBody
//	503  authentic, but it cannot be kept; too many deliveries at once; or a
//	     secret cannot be read and no other fits
//
// It fails if a receiver has no secret, or an empty one: an unsigned hook is an open
// door.
func Handler(o Options) (http.Handler, error) {
	if len(o.Receivers) == 0 || o.Log == nil {
		return nil, errors.New("webhook: Receivers and Log are needed")
	}
	for i := range o.Receivers {
		r := &o.Receivers[i]
		if r.Secrets == nil || r.Take == nil {
			return nil, errors.New("webhook: a receiver needs Secrets and Take")
		}
		if all, err := r.secrets(); err != nil && len(all) == 0 {
			return nil, err
		}
	}
	if o.MaxBody <= 0 {
		o.MaxBody = DefaultMaxBody
	}
	if o.MaxParse <= 0 {
		o.MaxParse = min(DefaultMaxParse, o.MaxBody)
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	h := &handler{
		Options:    o,
		inFlight:   make(chan struct{}, maxInFlight),
		waiting:    make(chan struct{}, maxWaiting),
		secretless: make([]atomic.Bool, len(o.Receivers)),
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_webhook_deliveries_total",
			Help: "Webhook deliveries by event and by what became of them.",
		}, []string{"event", "result"}),
	}
	if o.Registry != nil {
		if err := o.Registry.Register(h.deliveries); err != nil {
			return nil, fmt.Errorf("webhook: register metrics: %w", err)
		}
	}
	return h, nil
}

// secrets are those of now, none of them empty; with an error, those that there are.
func (r *Receiver) secrets() ([][]byte, error) {
	all, err := r.Secrets()
	if err != nil {
		err = fmt.Errorf("webhook: %w", err)
	}
	if err == nil && len(all) == 0 {
		return nil, errors.New("webhook: no secret given: set one here and at the forge")
	}
	for i, s := range all {
		if len(bytes.TrimSpace(s)) == 0 {
			return nil, fmt.Errorf("webhook: secret %d is empty: set one here and at the forge", i+1)
		}
	}
	return all, err
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		h.answer(w, http.StatusMethodNotAllowed, "", resultMethod)
		return
	}
	body, whole, whose, code, result := h.receive(w, r)
	if code != 0 {
		if code == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "1")
		}
		h.answer(w, code, "", result)
		return
	}
	// From here on the delivery is authentic, and its headers are not: they are
	// not signed. The event's name only chooses how the body is read.
	name, id := eventName(r), deliveryID(r)
	d := Delivery{ID: id, Events: []Event{{Kind: Unread}}}
	if whole {
		var err error
		if d, err = read(id, name, mediaType(r), body); err != nil {
			h.Log.Warn("webhook: cannot read a delivery; looking at everything instead", "event", name, "delivery", id, "error", err)
		}
	} else {
		h.Log.Warn("webhook: delivery too large to read; looking at everything instead", "event", name, "delivery", id, "max_bytes", h.MaxParse)
	}
	for _, to := range whose {
		result = weightier(result, h.tell(to, d, name))
	}
	h.Log.Debug("webhook", "event", name, "delivery", id, "result", result)
	if result == resultFull {
		w.Header().Set("Retry-After", "1")
		h.answer(w, http.StatusServiceUnavailable, name, result)
		return
	}
	h.answer(w, http.StatusAccepted, name, result)
}

// results are what may become of an authentic delivery, the weightiest first: of
// several receivers that one counts.
var results = []string{resultFull, resultUnread, resultQueued, resultKnown, resultOwn, resultForeign, resultIgnored}

func weightier(a, b string) string {
	if a == "" || slices.Index(results, b) < slices.Index(results, a) {
		return b
	}
	return a
}

// tell gives a delivery to one receiver, and says what became of it there.
func (h *handler) tell(to *Receiver, d Delivery, name string) (result string) {
	err := to.Take(d)
	switch {
	case errors.Is(err, ErrForeign):
		return resultForeign
	case errors.Is(err, ErrOwn):
		return resultOwn
	case errors.Is(err, ErrKnown):
		return resultKnown
	case err != nil:
		h.Log.Warn("webhook: a delivery cannot be kept", "estate", to.Estate, "event", name, "delivery", d.ID, "error", err)
		return resultFull
	case len(d.Events) == 0:
		return resultIgnored
	case d.Events[0].Kind == Unread:
		return resultUnread
	}
	return resultQueued
}

// receive reads a delivery and checks its signature on the way. whole says that
// all of it is in body, and whose which receivers' secrets signed it. A code other
// than 0 is the answer.
//
// Who sends nothing takes nothing, and what fits into the begin of a body, as most
// does, waits for no place: anybody can send a header that looks signed, and then
// keep us waiting. Beyond that a storm waits in line; only what does not fit there
// is turned away. What is read may wait to be kept without being in the way of the
// next.
func (h *handler) receive(w http.ResponseWriter, r *http.Request) (body []byte, whole bool, whose []*Receiver, code int, result string) {
	refuse := func(code int, result string) ([]byte, bool, []*Receiver, int, string) {
		return nil, false, nil, code, result
	}
	want, ok := signature(r)
	if !ok {
		return refuse(http.StatusUnauthorized, resultForged)
	}
	if r.ContentLength > h.MaxBody {
		return refuse(http.StatusRequestEntityTooLarge, resultTooLarge)
	}
	in := http.MaxBytesReader(w, r.Body, h.MaxBody)
	until := func(at time.Time) bool { // a recorder in a test has no connection to set a deadline on
		err := http.NewResponseController(w).SetReadDeadline(at)
		return err == nil || errors.Is(err, http.ErrNotSupported)
	}
	if !until(time.Now().Add(h.Timeout)) {
		return refuse(http.StatusRequestTimeout, resultBroken)
	}
	var first [1]byte
	n, err := io.ReadFull(in, first[:])
	if err != nil && err != io.EOF {
		return refuse(unread(err))
	}
	select {
	case h.waiting <- struct{}{}:
		defer func() { <-h.waiting }()
	default:
		return refuse(http.StatusServiceUnavailable, resultBusy)
	}
	begin, err := io.ReadAll(io.MultiReader(bytes.NewReader(first[:n]), io.LimitReader(in, begins)))
	if err != nil {
		return refuse(unread(err))
	}
	if len(begin) > begins {
		late := time.NewTimer(h.Timeout)
		defer late.Stop()
		select {
		case h.inFlight <- struct{}{}:
			defer func() { <-h.inFlight }()
		case <-late.C:
			return refuse(http.StatusServiceUnavailable, resultBusy)
		case <-r.Context().Done():
			return refuse(http.StatusServiceUnavailable, resultBusy)
		}
		if !until(time.Now().Add(h.Timeout)) {
			return refuse(http.StatusRequestTimeout, resultBroken)
		}
	}
	type mac struct {
		hash.Hash
		of *Receiver
	}
	var macs []mac
	kept := &prefix{max: h.MaxParse}
	sinks := []io.Writer{kept}
	secretless := false
	for i := range h.Receivers {
		secrets, broken := h.secretsOf(i)
		secretless = secretless || broken
		for _, s := range secrets {
			m := hmac.New(sha256.New, s)
			macs, sinks = append(macs, mac{m, &h.Receivers[i]}), append(sinks, m)
		}
	}
	if len(macs) == 0 {
		return refuse(http.StatusServiceUnavailable, resultSecret)
	}
	length, err := io.Copy(io.MultiWriter(sinks...), io.MultiReader(bytes.NewReader(begin), in))
	if err != nil {
		return refuse(unread(err))
	}
	// All secrets are compared, so that the time taken does not tell which fits.
	for _, m := range macs {
		if hmac.Equal(m.Sum(nil), want) && !slices.Contains(whose, m.of) {
			whose = append(whose, m.of)
		}
	}
	switch {
	case len(whose) > 0:
		return kept.kept, length <= h.MaxParse, whose, 0, ""
	case secretless: // it may be of who has none now
		return refuse(http.StatusServiceUnavailable, resultSecret)
	}
	return refuse(http.StatusUnauthorized, resultForged)
}

// unread is the answer to a body that could not be read.
func unread(err error) (code int, result string) {
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return http.StatusRequestEntityTooLarge, resultTooLarge
	}
	return http.StatusRequestTimeout, resultBroken
}

// secretsOf are a receiver's. That one is missing is told when it begins and when it
// is over: a stranger must not be able to write our log.
func (h *handler) secretsOf(i int) (secrets [][]byte, broken bool) {
	secrets, err := h.Receivers[i].secrets()
	broken = err != nil
	if h.secretless[i].Swap(broken) != broken {
		if broken {
			h.Log.Error("webhook: what is signed with a secret that is missing is refused until it is there", "estate", h.Receivers[i].Estate, "secrets", len(secrets), "error", err)
		} else {
			h.Log.Info("webhook: all secrets are there again", "estate", h.Receivers[i].Estate)
		}
	}
	return secrets, broken
}

// answer writes a bare code: what went wrong with a delivery is no business of
// who sent it.
func (h *handler) answer(w http.ResponseWriter, code int, event, result string) {
	h.deliveries.WithLabelValues(eventLabel(event), result).Inc()
	w.WriteHeader(code)
}

// signature is the SHA-256 HMAC a request claims. The SHA-1 one is not looked at.
func signature(r *http.Request) ([]byte, bool) {
	v := r.Header.Values(github.SHA256SignatureHeader)
	if len(v) != 1 {
		return nil, false
	}
	digits, ok := strings.CutPrefix(v[0], "sha256=")
	if !ok || len(digits) != 2*sha256.Size {
		return nil, false
	}
	sum, err := hex.DecodeString(digits)
	return sum, err == nil
}

func eventName(r *http.Request) string { return clip(r.Header.Get(github.EventTypeHeader), 64) }

func deliveryID(r *http.Request) string { return clip(r.Header.Get(github.DeliveryIDHeader), 64) }

func mediaType(r *http.Request) string {
	t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return t
}

func clip(s string, n int) string { return s[:min(len(s), n)] }

// eventLabel keeps the label's values few, whatever is sent.
func eventLabel(name string) string {
	switch name {
	case "push", "pull_request", "pull_request_review", "ping", "check_run", "check_suite", "issue_comment", "merge_group":
		return name
	case "":
		return "unknown"
	}
	return "other"
}

// prefix keeps the first max bytes written to it and swallows the rest.
type prefix struct {
	kept []byte
	max  int64
}

func (p *prefix) Write(b []byte) (int, error) {
	if room := p.max - int64(len(p.kept)); room > 0 {
		p.kept = append(p.kept, b[:min(int64(len(b)), room)]...)
	}
	return len(b), nil
}
