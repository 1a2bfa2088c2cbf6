package webhooks

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ErrFull is returned by Receiver.Take while it can store no more. The forge gets
// a 503, so that the delivery shows as failed there and can be redelivered.
var ErrFull = errors.New("queue is full")

// Errors of Receiver.Take for a delivery that needs no reaction. The forge gets a
// 202.
var (
	ErrForeign = errors.New("of another repository") // an organisation's hook covers all of them
	ErrOwn     = errors.New("caused by Berth itself")
	ErrKnown   = errors.New("delivered and processed before")
)

// Format is how one forge signs and describes its deliveries. All fields are
// needed. The functions are pure and safe for concurrent use.
type Format struct {
	// Claim returns the signature that a request claims; false if it claims none, or
	// several.
	Claim func(http.Header) (Claim, bool)
	// Envelope returns the event's name and the delivery's id. Neither is signed.
	Envelope func(http.Header) (event, id string)
	// Read returns what an authentic body asks for. With an error, the delivery has
	// one Unread event.
	Read func(id, event, mediaType string, body []byte) (Delivery, error)
	// Events are the names that the metric shows; it counts others as "other".
	Events []string
}

// Claim is a signature that a request claims and that a secret proves.
type Claim struct {
	// Sum is compared with the hash of the body, in constant time.
	Sum []byte
	// Hash returns the hash for a secret. Where a forge signs more than the body, the
	// returned hash has the rest already.
	Hash func(secret []byte) hash.Hash
}

// HMAC is the claim of a SHA-256 HMAC of the body.
func HMAC(sum []byte) Claim {
	return Claim{Sum: sum, Hash: func(secret []byte) hash.Hash { return hmac.New(sha256.New, secret) }}
}

// Receiver is one estate's end of a webhook. It gets the deliveries that one of
// its own secrets signed.
type Receiver struct {
	Estate string // for logs
	// Secrets returns the valid secrets, none of them empty: two while one is being
	// replaced. It is called for each delivery, so that a replaced secret is valid
	// at once, and must be safe for concurrent use. The secrets that come with an
	// error are valid; a delivery that none of them signed gets a 503, unless
	// another receiver's secret signed it.
	Secrets func() ([][]byte, error)
	// Take stores a delivery, possibly without events. Once it returns nil, the
	// delivery must survive a crash. ErrForeign, ErrOwn and ErrKnown are answered
	// with 202 too, any other error with 503.
	Take func(Delivery) error
}

// Limits and defaults of a Handler.
const (
	DefaultMaxBody  = 25 << 20 // the most GitHub sends
	DefaultMaxParse = 1 << 20
	DefaultTimeout  = 5 * time.Second // GitHub waits 10 s
	maxSmallBody    = 64 << 10        // bodies up to this size need no slot
	maxLargeBodies  = 32              // slots for larger bodies: 32 MiB at most
	maxConcurrent   = 1024            // deliveries that sent at least one byte: 64 MiB at most
)

// Options of a Handler.
type Options struct {
	Format    Format
	Receivers []Receiver
	// MaxBody bounds a delivery in bytes; a larger one gets 413.
	MaxBody int64
	// MaxParse bounds the part that is kept in memory and parsed. The signature of a
	// larger body is still verified, as a stream, and its event is Unread.
	MaxParse int64
	// Timeout bounds how long a body may take to arrive, and how long a large one
	// may wait for a slot.
	Timeout time.Duration

	Log      *slog.Logger
	Registry prometheus.Registerer // for berth_webhook_deliveries_total, which all handlers share; nil: not registered
}

// handler serves one forge's webhook address.
type handler struct {
	Options
	largeBodies    chan struct{}
	concurrent     chan struct{}
	secretsMissing []atomic.Bool // by receiver: reading its secrets failed last time
	deliveries     *prometheus.CounterVec
}

// Results of deliveries: the values of the label "result".
const (
	resultQueued   = "queued"
	resultIgnored  = "ignored"   // authentic; Berth does not react to it
	resultUnread   = "unread"    // authentic; too large or of an unknown shape
	resultForeign  = "foreign"   // authentic; of another repository
	resultOwn      = "own"       // authentic; caused by Berth itself
	resultKnown    = "known"     // authentic; processed before
	resultFull     = "full"      // authentic; could not be stored
	resultForged   = "forged"    // without a valid signature
	resultTooLarge = "too_large" // beyond MaxBody
	resultBroken   = "broken"    // the body did not arrive
	resultBusy     = "busy"      // too many at once; not read
	resultSecret   = "no_secret" // no secret can be read
	resultMethod   = "method"    // not a POST
)

// resultRank orders the results of an authentic delivery: of several receivers'
// results, the first in this list counts.
var resultRank = []string{resultFull, resultUnread, resultQueued, resultKnown, resultOwn, resultForeign, resultIgnored}

// refusal ends a delivery before any receiver gets it.
type refusal struct {
	code   int
	result string
}

func (r *refusal) Error() string { return r.result }

// Handler answers a forge's deliveries:
//
//	202  authentic (also if Berth does not react to it, or cannot read it)
//	401  no valid signature; the body was not parsed
//	405  not a POST
//	408  the body did not arrive in time
//	413  larger than MaxBody
//	503  authentic, but it cannot be stored; too many deliveries at once; or a
//	     secret is unreadable and no other one signed the body
//
// Handler returns an error if a receiver has no secret, or an empty one: a webhook
// without signatures is open to everybody.
func Handler(o Options) (http.Handler, error) {
	if err := o.check(); err != nil {
		return nil, err
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
		Options:        o,
		largeBodies:    make(chan struct{}, maxLargeBodies),
		concurrent:     make(chan struct{}, maxConcurrent),
		secretsMissing: make([]atomic.Bool, len(o.Receivers)),
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_webhook_deliveries_total",
			Help: "Webhook deliveries, by event and result.",
		}, []string{"event", "result"}),
	}
	if o.Registry != nil {
		err := o.Registry.Register(h.deliveries)
		if same := (prometheus.AlreadyRegisteredError{}); errors.As(err, &same) { // by the handler of another forge
			h.deliveries = same.ExistingCollector.(*prometheus.CounterVec)
		} else if err != nil {
			return nil, fmt.Errorf("webhook: register metrics: %w", err)
		}
	}
	return h, nil
}

func (o *Options) check() error {
	if len(o.Receivers) == 0 || o.Log == nil || o.Format.Read == nil {
		return errors.New("webhook: Format, Receivers and Log are needed")
	}
	for i := range o.Receivers {
		r := &o.Receivers[i]
		if r.Secrets == nil || r.Take == nil {
			return errors.New("webhook: a receiver needs Secrets and Take")
		}
		if all, err := r.secrets(); err != nil && len(all) == 0 {
			return err
		}
	}
	return nil
}

// secrets returns the receiver's secrets, none of them empty. The secrets that
// come with an error are valid.
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
	body, whole, receivers, err := h.receive(w, r)
	if refused := (*refusal)(nil); errors.As(err, &refused) {
		h.answer(w, refused.code, "", refused.result)
		return
	}
	// From here on the body is authentic. The headers are not signed: the event's
	// name only chooses how the body is read.
	name, id := h.Format.Envelope(r.Header)
	d := Delivery{ID: id, Events: []Event{{Kind: Unread}}}
	if whole {
		mediaType, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
		if d, err = h.Format.Read(id, name, mediaType, body); err != nil {
			h.Log.Warn("webhook delivery unreadable; reconciling everything", "event", name, "delivery", id, "error", err)
		}
	} else {
		h.Log.Warn("webhook delivery too large to parse; reconciling everything", "event", name, "delivery", id, "max_bytes", h.MaxParse)
	}
	result := resultIgnored
	for _, receiver := range receivers {
		if got := h.deliver(receiver, d, name); slices.Index(resultRank, got) < slices.Index(resultRank, result) {
			result = got
		}
	}
	h.Log.Debug("webhook delivery received", "event", name, "delivery", id, "result", result)
	code := http.StatusAccepted
	if result == resultFull {
		code = http.StatusServiceUnavailable
	}
	h.answer(w, code, name, result)
}

// deliver gives a delivery to one receiver and returns the result there.
func (h *handler) deliver(to *Receiver, d Delivery, name string) (result string) {
	err := to.Take(d)
	switch {
	case errors.Is(err, ErrForeign):
		return resultForeign
	case errors.Is(err, ErrOwn):
		return resultOwn
	case errors.Is(err, ErrKnown):
		return resultKnown
	case err != nil:
		h.Log.Warn("webhook delivery not stored", "estate", to.Estate, "event", name, "delivery", d.ID, "error", err)
		return resultFull
	case len(d.Events) == 0:
		return resultIgnored
	case d.Events[0].Kind == Unread:
		return resultUnread
	}
	return resultQueued
}

// receive reads a delivery and verifies its signature. It returns the body (whole
// is false if the body is longer than MaxParse) and the receivers whose secrets
// signed it. The error is a *refusal.
//
// An idle connection holds no slot: a stranger can send a header that looks signed
// and then keep Berth waiting. A small body waits for no slot either. Larger
// bodies wait in line for one; only bodies that do not fit in the line are refused.
func (h *handler) receive(w http.ResponseWriter, r *http.Request) (body []byte, whole bool, receivers []*Receiver, err error) {
	claimed, ok := h.Format.Claim(r.Header)
	if !ok {
		return nil, false, nil, &refusal{http.StatusUnauthorized, resultForged}
	}
	if r.ContentLength > h.MaxBody {
		return nil, false, nil, &refusal{http.StatusRequestEntityTooLarge, resultTooLarge}
	}
	if !h.extendDeadline(w) {
		return nil, false, nil, &refusal{http.StatusRequestTimeout, resultBroken}
	}
	in := http.MaxBytesReader(w, r.Body, h.MaxBody)
	var first [1]byte
	n, err := io.ReadFull(in, first[:])
	if err != nil && err != io.EOF {
		return nil, false, nil, readRefusal(err)
	}
	select {
	case h.concurrent <- struct{}{}:
		defer func() { <-h.concurrent }()
	default:
		return nil, false, nil, &refusal{http.StatusServiceUnavailable, resultBusy}
	}
	head, err := io.ReadAll(io.MultiReader(bytes.NewReader(first[:n]), io.LimitReader(in, maxSmallBody)))
	if err != nil {
		return nil, false, nil, readRefusal(err)
	}
	if len(head) > maxSmallBody {
		late := time.NewTimer(h.Timeout)
		defer late.Stop()
		select {
		case h.largeBodies <- struct{}{}:
			defer func() { <-h.largeBodies }()
		case <-late.C:
			return nil, false, nil, &refusal{http.StatusServiceUnavailable, resultBusy}
		case <-r.Context().Done():
			return nil, false, nil, &refusal{http.StatusServiceUnavailable, resultBusy}
		}
		if !h.extendDeadline(w) {
			return nil, false, nil, &refusal{http.StatusRequestTimeout, resultBroken}
		}
	}
	return h.verify(io.MultiReader(bytes.NewReader(head), in), claimed)
}

// extendDeadline gives the connection another Timeout to send; false if it is
// broken. A test's recorder has no connection and always succeeds.
func (h *handler) extendDeadline(w http.ResponseWriter) bool {
	err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(h.Timeout))
	return err == nil || errors.Is(err, http.ErrNotSupported)
}

// verify reads a body to its end and returns it, as receive does, with the
// receivers whose secrets signed it.
func (h *handler) verify(in io.Reader, claimed Claim) (body []byte, whole bool, receivers []*Receiver, err error) {
	type mac struct {
		hash.Hash
		of *Receiver
	}
	var macs []mac
	kept := &prefix{max: h.MaxParse}
	sinks := []io.Writer{kept}
	missing := false
	for i := range h.Receivers {
		secrets, failed := h.secretsOf(i)
		missing = missing || failed
		for _, s := range secrets {
			m := claimed.Hash(s)
			macs, sinks = append(macs, mac{m, &h.Receivers[i]}), append(sinks, m)
		}
	}
	if len(macs) == 0 {
		return nil, false, nil, &refusal{http.StatusServiceUnavailable, resultSecret}
	}
	length, err := io.Copy(io.MultiWriter(sinks...), in)
	if err != nil {
		return nil, false, nil, readRefusal(err)
	}
	// All secrets are compared, so that the time taken does not show which one is valid.
	for _, m := range macs {
		if hmac.Equal(m.Sum(nil), claimed.Sum) && !slices.Contains(receivers, m.of) {
			receivers = append(receivers, m.of)
		}
	}
	switch {
	case len(receivers) > 0:
		return kept.kept, length <= h.MaxParse, receivers, nil
	case missing: // the unreadable secret may be the one that signed it
		return nil, false, nil, &refusal{http.StatusServiceUnavailable, resultSecret}
	}
	return nil, false, nil, &refusal{http.StatusUnauthorized, resultForged}
}

// readRefusal is the refusal of a body that could not be read.
func readRefusal(err error) *refusal {
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return &refusal{http.StatusRequestEntityTooLarge, resultTooLarge}
	}
	return &refusal{http.StatusRequestTimeout, resultBroken}
}

// secretsOf returns a receiver's secrets, and whether reading them failed. It logs
// only when that changes: a stranger must not be able to fill the log.
func (h *handler) secretsOf(i int) (secrets [][]byte, failed bool) {
	secrets, err := h.Receivers[i].secrets()
	failed = err != nil
	if h.secretsMissing[i].Swap(failed) != failed {
		if failed {
			h.Log.Error("webhook secret unreadable; deliveries signed with it get 503", "estate", h.Receivers[i].Estate, "readable_secrets",
				len(secrets), "error", err)
		} else {
			h.Log.Info("webhook secrets readable again", "estate", h.Receivers[i].Estate)
		}
	}
	return secrets, failed
}

// answer writes a bare status code: a sender learns nothing about the cause.
func (h *handler) answer(w http.ResponseWriter, code int, event, result string) {
	switch {
	case event == "":
		event = "unknown"
	case !slices.Contains(h.Format.Events, event): // an event's name is not signed: few label values
		event = "other"
	}
	if code == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	h.deliveries.WithLabelValues(event, result).Inc()
	w.WriteHeader(code)
}

// prefix keeps the first max bytes written to it and discards the rest.
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
