package githubtest

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// App is a GitHub App that makes its own tokens.
type App struct {
	ID           int64
	Installation int64
	Slug         string
	Key          *rsa.PublicKey
	// Permissions are those that the owner granted, such as "checks": "write". A token
	// may have fewer, never more. nil: all.
	Permissions map[string]string
}

// issued is a token of an App.
type issued struct {
	Token
	until time.Time
}

// createToken makes a token that is valid for an hour.
func (s *Server) createToken(c *call) (reply, *problem) {
	app := s.o.App
	if app == nil || number(c, "installation_id") != app.Installation {
		return reply{}, notThere
	}
	var b struct {
		Repositories []string
		Permissions  map[string]string
	}
	if bad := c.decode(&b); bad != nil {
		return reply{}, bad
	}
	for _, r := range b.Repositories {
		if r != s.o.Repo {
			return reply{}, unprocessable("the App is not installed on %q", r)
		}
	}
	granted, beyond := app.widest(b.Permissions)
	if beyond != "" {
		return reply{}, unprocessable("The permissions requested are not granted to this installation: %s", beyond)
	}
	// As at GitHub: long, without a fixed length.
	token := fmt.Sprintf("ghs_%d_%d%s", app.ID, s.id(), strings.Repeat("x", int(s.lastID%60)+100))
	until := s.now().Add(time.Hour)
	s.issued[token] = issued{Token{Login: app.Slug, App: true, Permissions: granted}, until}
	return reply{status: http.StatusCreated, body: obj{
		"token": token, "expires_at": stamp(until), "permissions": granted, "repository_selection": "selected",
	}}, nil
}

// identify returns the sender of a request. The caller holds mu.
func (s *Server) identify(op, token string) (Token, *problem) {
	if _, path, _ := strings.Cut(op, " "); path == "/app" || strings.HasPrefix(path, "/app/") {
		if s.o.App == nil {
			return Token{}, notThere
		}
		if err := s.o.App.verify(token, s.o.Now()); err != nil {
			return Token{}, &problem{http.StatusUnauthorized, "A JSON web token could not be decoded: " + err.Error()}
		}
		return Token{Login: s.o.App.Slug, App: true}, nil
	}
	if t, ok := s.o.Tokens[token]; ok {
		return t, nil
	}
	if t, ok := s.issued[token]; ok && s.o.Now().Before(t.until) {
		return t.Token, nil
	}
	return Token{}, &problem{http.StatusUnauthorized, "Bad credentials"}
}

// verify checks an App's assertion as GitHub does.
func (a *App) verify(token string, now time.Time) error {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return fmt.Errorf("%d parts", len(parts))
	}
	var raw [3][]byte
	for i, p := range parts {
		var err error
		if raw[i], err = base64.RawURLEncoding.DecodeString(p); err != nil {
			return err
		}
	}
	var head struct{ Alg string }
	var claims struct {
		Iss string
		Iat int64
		Exp int64
	}
	if err := json.Unmarshal(raw[0], &head); err != nil {
		return err
	}
	if err := json.Unmarshal(raw[1], &claims); err != nil {
		return err
	}
	digest := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	switch {
	case head.Alg != "RS256":
		return fmt.Errorf("algorithm %q", head.Alg)
	case claims.Iss != strconv.FormatInt(a.ID, 10):
		return fmt.Errorf("issuer %q", claims.Iss)
	case claims.Iat > now.Unix(), claims.Exp <= now.Unix(), claims.Exp-now.Unix() > 600:
		return fmt.Errorf("issued at %d, expires at %d, it is %d", claims.Iat, claims.Exp, now.Unix())
	}
	return rsa.VerifyPKCS1v15(a.Key, crypto.SHA256, digest[:], raw[2])
}
