package githubtest

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"net/http"
	"strconv"
	"time"
)

// hook sends signed requests as GitHub's webhooks do.
type hook struct {
	client  *http.Client
	secret  []byte
	owner   string // "repository", or "integration" for an App
	ownerID int64
}

func newHook(o Options) hook {
	h := hook{
		client: &http.Client{Timeout: 10 * time.Second,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		secret: o.Secret, owner: "repository", ownerID: 1,
	}
	if o.App != nil {
		h.owner, h.ownerID = "integration", o.App.ID
	}
	return h
}

const unreached = "failed to connect to host"

// send makes an attempt and records its result.
func (h hook) send(ctx context.Context, url string, p *pending) {
	if url == "" {
		p.Error = "no webhook is configured"
		return
	}
	if p.Fails {
		p.Error = unreached
		return
	}
	err := h.post(ctx, url, &p.Delivery)
	switch {
	case err != nil:
		p.Error = unreached + ": " + err.Error()
	case p.Unheard:
		p.Status, p.answer, p.Error = 0, "", timedOut
	}
}

const timedOut = "timed out"

func (h hook) post(ctx context.Context, url string, d *Delivery) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(d.Body))
	if err != nil {
		return err
	}
	for k, v := range h.header(d) {
		r.Header.Set(k, v)
	}
	resp, err := h.client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return err
	}
	d.Status, d.answer = resp.StatusCode, string(text[:min(len(text), 1<<10)])
	return nil
}

// header has the headers of a delivery.
func (h hook) header(d *Delivery) map[string]string {
	sign := func(algorithm func() hash.Hash) string {
		sum := hmac.New(algorithm, h.secret)
		sum.Write(d.Body)
		return hex.EncodeToString(sum.Sum(nil))
	}
	return map[string]string{
		"Content-Type": "application/json", "User-Agent": "GitHub-Hookshot/0000000", "Accept": "*/*",
		"X-GitHub-Event": d.Event, "X-GitHub-Delivery": d.ID, "X-GitHub-Hook-ID": "1",
		"X-GitHub-Hook-Installation-Target-Type": h.owner, "X-GitHub-Hook-Installation-Target-ID": strconv.FormatInt(h.ownerID, 10),
		"X-Hub-Signature": "sha1=" + sign(sha1.New), "X-Hub-Signature-256": "sha256=" + sign(sha256.New),
	}
}
