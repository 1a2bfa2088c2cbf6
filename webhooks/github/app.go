package github

import (
	"bytes"
	"context"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// App is a GitHub App installed on the repository's owner. Only Apps may write
// check runs.
type App struct {
	BaseURL      string // as in Options
	ID           int64
	Installation int64
	Key          []byte // private key in PEM, as downloaded from GitHub
	// Repo restricts the tokens to one repository of the owner.
	Repo string
	// Permissions restricts the tokens to these permissions of the App: see Reporting
	// and Contents.
	Permissions map[string]string

	Transport http.RoundTripper // http.DefaultTransport if nil
	Timeout   time.Duration     // of one request for a token; 15 s if zero
	Now       func() time.Time  // time.Now if nil
}

// renewBefore is how long before its expiry a token is replaced. GitHub's tokens last
// an hour, and a request may wait before it is sent.
const renewBefore = 10 * time.Minute

// Reporting has the permissions to read pull requests, to write checks and to comment.
// It gives no access to files.
func Reporting() map[string]string {
	return map[string]string{"metadata": "read", "checks": "write", "pull_requests": "write"}
}

// Contents has the permissions to fetch and to push. It gives no access to checks and
// comments.
func Contents() map[string]string {
	return map[string]string{"metadata": "read", "contents": "write"}
}

// check sets the defaults and parses the key.
func (a *App) check() (*url.URL, *rsa.PrivateKey, error) {
	base, err := url.Parse(a.BaseURL)
	if err != nil || base.Host == "" {
		return nil, nil, errors.New("github: the App needs a base_url such as https://api.github.com/")
	}
	if a.ID <= 0 || a.Installation <= 0 || !name(a.Repo) {
		return nil, nil, errors.New("github: the App needs its id, its installation's id and a repository")
	}
	if a.Transport == nil {
		a.Transport = http.DefaultTransport
	}
	if a.Timeout == 0 {
		a.Timeout = 15 * time.Second
	}
	if a.Now == nil {
		a.Now = time.Now
	}
	key, err := jwt.ParseRSAPrivateKeyFromPEM(a.Key)
	if err != nil { // not quoted: it may hold a part of the key
		return nil, nil, errors.New("github: the App's private key is not an RSA private key in PEM: name the .pem file that GitHub " +
			"gave, which begins with -----BEGIN RSA PRIVATE KEY-----")
	}
	return base, key, nil
}

// Assertions is a source of the App's own tokens, for requests about the App itself.
func (a App) Assertions() (TokenSource, error) {
	_, key, err := a.check()
	if err != nil {
		return nil, err
	}
	return func(context.Context) (string, error) { return a.assertion(key) }, nil
}

// Tokens is a source of the installation's tokens. A token is used until shortly before
// its expiry, or until the forge refuses it. While one caller requests a new one, the
// others wait. While GitHub limits these requests, the error is a *LimitError and no
// request is sent.
func (a App) Tokens() (TokenSource, error) {
	if len(a.Permissions) == 0 {
		return nil, errors.New("github: Permissions are needed: without them a token could do all that the App may")
	}
	base, key, err := a.check()
	if err != nil {
		return nil, err
	}
	type current struct {
		token string
		until time.Time
	}
	turn := make(chan current, 1) // the holder may renew it
	turn <- current{}
	var limits Pacer
	return func(ctx context.Context) (string, error) {
		var c current
		select {
		case c = <-turn:
		case <-ctx.Done():
			return "", ctx.Err()
		}
		defer func() { turn <- c }()
		if c.token != "" && c.token != ctx.Value(refusedKey{}) && a.Now().Before(c.until.Add(-renewBefore)) {
			return c.token, nil
		}
		token, until, err := a.fetch(ctx, base, key, &limits)
		if err != nil {
			return "", fmt.Errorf("github: token for installation %d of App %d: %w", a.Installation, a.ID, err)
		}
		c = current{token, until}
		return token, nil
	}, nil
}

// fetch requests a token, unless a limit is in effect.
func (a App) fetch(ctx context.Context, base *url.URL, key *rsa.PrivateKey, limits *Pacer) (token string, until time.Time, err error) {
	sent := a.Now()
	if limit := limits.held(sent); limit != nil {
		return "", time.Time{}, limit
	}
	assertion, err := a.assertion(key)
	if err != nil {
		return "", time.Time{}, err
	}
	body, err := json.Marshal(map[string]any{
		"repositories": []string{a.Repo},
		"permissions":  a.Permissions,
	})
	if err != nil {
		return "", time.Time{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	u := strings.TrimSuffix(base.String(), "/") + "/app/installations/" + strconv.FormatInt(a.Installation, 10) + "/access_tokens"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u, bytes.NewReader(body))
	if err != nil {
		return "", time.Time{}, err
	}
	req.Header.Set("Authorization", "Bearer "+assertion)
	req.Header.Set("Accept", "application/vnd.github+json")
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "berth")
	resp, err := a.Transport.RoundTrip(req) // no redirects
	if err != nil {
		return "", time.Time{}, err
	}
	defer resp.Body.Close()
	var answer struct {
		Token     string    `json:"token"`
		ExpiresAt time.Time `json:"expires_at"`
		Message   string    `json:"message"`
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return "", time.Time{}, err
	}
	if limit := classify(resp, data, a.Now()); limit != nil {
		return "", time.Time{}, limits.stop(limit, req.Method, sent, a.Now())
	}
	// An unreadable answer is not quoted: it may hold a token.
	if json.Unmarshal(data, &answer) != nil || resp.StatusCode != http.StatusCreated || answer.Token == "" {
		return "", time.Time{}, fmt.Errorf("HTTP %d %q: check the App's id, key, installation and permissions (checks, contents, pull "+
			"requests: write)", resp.StatusCode, cut(plain(strings.ReplaceAll(answer.Message, assertion, "***")), 200))
	}
	limits.passed(req.Method, sent)
	return answer.Token, answer.ExpiresAt, nil
}

// assertion is the JSON Web Token (RS256) by which an App authenticates. It is valid
// for nine minutes (GitHub allows ten) and begins a minute ago, for clocks that differ.
func (a App) assertion(key *rsa.PrivateKey) (string, error) {
	now := a.Now()
	return jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.RegisteredClaims{
		Issuer:   strconv.FormatInt(a.ID, 10),
		IssuedAt: jwt.NewNumericDate(now.Add(-time.Minute)), ExpiresAt: jwt.NewNumericDate(now.Add(8 * time.Minute)),
	}).SignedString(key)
}
