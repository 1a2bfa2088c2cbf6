// Package remote asks a daemon's API for the commands that work on running units. A call with an
// idempotency key is sent again while the daemon or the scheduler does not answer.
//
// It must not know the estate or a runtime.
package remote

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/cmd/internal/cli"
	"berth/schema"
)

// Server is the API of a daemon, with the credentials of the caller.
type Server struct {
	URL       string
	TokenFile string
	// Reason makes a call one of the admin paths, where it is audited.
	Reason string

	pause time.Duration // before the second try; 0: 200 ms
}

// Flags adds the flags that find the server.
func (s *Server) Flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.URL, "server", "", "`URL` of the daemon; default: $BERTH_SERVER")
	f.StringVar(&s.TokenFile, "token-file", "", "`file` with your token for the API; default: the token is $BERTH_TOKEN")
	f.StringVar(&s.Reason, "break-glass", "", "`reason` for which a role of the platform works in a tenant; it is audited")
}

// Place is an instance and its project, or a project alone.
type Place struct{ Project, Instance string }

// ParseProject parses TENANT.PROJECT.
func ParseProject(text string) (Place, error) {
	place, err := ParsePlace(text + "/x")
	if err != nil {
		return Place{}, cli.Usage(fmt.Errorf("%q is not a project: write TENANT.PROJECT", text))
	}
	return Place{Project: place.Project}, nil
}

// ParsePlace parses TENANT.PROJECT/INSTANCE.
func ParsePlace(text string) (Place, error) {
	project, instance, ok := strings.Cut(text, "/")
	tenant, name, dot := strings.Cut(project, ".")
	if !ok || !dot || tenant == "" || name == "" || instance == "" || strings.ContainsAny(text, "?#% ") || strings.Count(text, "/") != 1 {
		return Place{}, cli.Usage(fmt.Errorf("%q is not an instance: write TENANT.PROJECT/INSTANCE", text))
	}
	return Place{project, instance}, nil
}

// Request is a request for an instance, or for a project.
type Request struct {
	Method string // "": GET
	Place
	Path  string // below the instance, such as queue/jobs; without an instance, below the project
	Query url.Values
	Key   string // idempotency key; "": the request is sent once
	Body  any    // as JSON; nil: none
}

const (
	tries    = 5
	maxReply = 64 << 20
)

// codeForeign is the code of an answer that is not Berth's, such as that of a proxy.
const codeForeign = "http"

// Error is the error of the API.
type Error struct {
	Code          string `json:"code"`
	Message       string `json:"message"`
	CorrelationID string `json:"correlation_id"`
	Status        int    `json:"-"`
	Unsure        bool   `json:"-"` // an earlier try of the request had no answer, and may have had its effect
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s (correlation id %s)", e.Code, e.Message, e.CorrelationID)
}

// Do sends a request and decodes the answer into, unless that is nil. It returns the header.
func (s *Server) Do(ctx context.Context, r Request, into any) (http.Header, error) {
	text, header, err := s.Raw(ctx, r)
	if err == nil && into != nil {
		if err = json.Unmarshal(text, into); err != nil {
			err = fmt.Errorf("the answer of the server is not as expected: %w; is it another version?", err)
		}
	}
	return header, err
}

// Raw sends a request and returns the body of the answer.
func (s *Server) Raw(ctx context.Context, r Request) (body []byte, header http.Header, err error) {
	base, token, err := s.find()
	if err != nil {
		return nil, nil, err
	}
	target := s.target(base, r)
	pause := cmp.Or(s.pause, 200*time.Millisecond)
	unanswered := false
	for try := 1; ; try++ {
		body, header, err = s.onceAtLeader(ctx, r, target, token)
		e := new(Error)
		if errors.As(err, &e) {
			e.Unsure = unanswered
		}
		if err == nil || r.Key == "" || try == tries || !again(err) {
			return body, header, err
		}
		unanswered = unanswered || e.Code == "" || e.Code == codeForeign
		if after, e := strconv.Atoi(header.Get("Retry-After")); e == nil && s.pause == 0 {
			pause = min(time.Duration(after)*time.Second, 5*time.Second)
		}
		select {
		case <-ctx.Done():
			return nil, nil, err
		case <-time.After(pause):
		}
		pause *= 2
	}
}

// target returns the URL of a request at the server with a base URL.
func (s *Server) target(base string, r Request) string {
	path := "/api/v1"
	if s.Reason != "" {
		path += "/admin"
	}
	target := strings.TrimSuffix(base, "/") + path + "/projects/" + r.Project
	if r.Instance != "" {
		target += "/app-instances/" + r.Instance
	}
	target += "/" + r.Path
	if len(r.Query) > 0 {
		target += "?" + r.Query.Encode()
	}
	return target
}

// errLeader: the address of the leader may not get the token.
var errLeader = errors.New("the server stands by and names the leader")

// onceAtLeader sends a request, and sends it to the leader if the server stands by and names it.
func (s *Server) onceAtLeader(ctx context.Context, r Request, target, token string) ([]byte, http.Header, error) {
	body, header, err := s.once(ctx, r, target, token)
	leader := header.Get("Location")
	if !isStandby(err) || leader == "" {
		return body, header, err
	}
	if err := checkAddress(leader, strings.HasPrefix(target, "https://")); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errLeader, err)
	}
	return s.once(ctx, r, leader, token)
}

// isStandby reports whether a daemon answered that another one leads.
func isStandby(err error) bool {
	e := new(Error)
	return errors.As(err, &e) && e.Status == http.StatusTemporaryRedirect
}

// checkAddress checks that a token may be sent to an address: with encryption, or on this machine if no
// encryption was asked for.
func checkAddress(address string, encrypted bool) error {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("%q is not a URL such as https://berth.example.org", address)
	case u.Scheme == "http" && (encrypted || !schema.IsLoopback(u.Hostname())):
		return fmt.Errorf("%s would send your token without encryption: use https", address)
	}
	return nil
}

// again reports whether the same request may succeed later.
func again(err error) bool {
	if errors.Is(err, errLeader) {
		return false
	}
	if e := new(Error); errors.As(err, &e) {
		return e.Status == http.StatusTemporaryRedirect || e.Status == http.StatusServiceUnavailable ||
			e.Status == http.StatusTooManyRequests || e.Status == http.StatusBadGateway
	}
	return true // the connection broke
}

// IsRefusal reports whether Berth answered that a request has no effect. After any other error it may have one.
func IsRefusal(err error) bool {
	e := new(Error)
	return errors.As(err, &e) && !e.Unsure && e.Code != codeForeign && e.Status >= 400 && e.Status < 500 &&
		e.Status != http.StatusTooManyRequests
}

func (s *Server) once(ctx context.Context, r Request, target, token string) ([]byte, http.Header, error) {
	var text bytes.Buffer
	if r.Body != nil {
		body := json.NewEncoder(&text)
		body.SetEscapeHTML(false) // a script would be up to six times as long
		if err := body.Encode(r.Body); err != nil {
			return nil, nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, cmp.Or(r.Method, http.MethodGet), target, bytes.NewReader(text.Bytes()))
	if err != nil {
		return nil, nil, cli.Usage(fmt.Errorf("--server: %w", err))
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if r.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range map[string]string{"Idempotency-Key": r.Key, "X-Break-Glass": s.Reason} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	res, err := send(req)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxReply))
	switch {
	case err != nil:
		return nil, res.Header, fmt.Errorf("the answer of the server broke off: %w", err)
	case res.StatusCode >= 300:
		return nil, res.Header, errorOf(req, res, body)
	}
	return body, res.Header, nil
}

// send sends a request, and follows no redirection.
func send(req *http.Request) (*http.Response, error) {
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("no answer of the server: %w", err)
	}
	return res, nil
}

// errorOf returns the error that an answer has.
func errorOf(req *http.Request, res *http.Response, body []byte) *Error {
	var e struct{ Error Error }
	if json.Unmarshal(body, &e) != nil || e.Error.Code == "" {
		return &Error{Code: codeForeign,
			Message: fmt.Sprintf("%s answered %s: is it the URL of a Berth daemon?", req.URL.Host, res.Status), Status: res.StatusCode}
	}
	e.Error.Status = res.StatusCode
	return &e.Error
}

// find returns the URL of the server and the token.
func (s *Server) find() (base, token string, err error) {
	base = cmp.Or(s.URL, os.Getenv("BERTH_SERVER"))
	if base == "" {
		return "", "", cli.Usage(errors.New("no server: set --server or $BERTH_SERVER to the URL of the daemon"))
	}
	if err := checkAddress(base, false); err != nil {
		return "", "", cli.Usage(fmt.Errorf("--server: %w", err))
	}
	token = os.Getenv("BERTH_TOKEN")
	if s.TokenFile != "" {
		text, err := os.ReadFile(s.TokenFile)
		if err != nil {
			return "", "", cli.Usage(fmt.Errorf("--token-file: %w", err))
		}
		token = strings.TrimSpace(string(text))
	}
	if token == "" {
		return "", "", cli.Usage(errors.New("no token: set --token-file, or $BERTH_TOKEN"))
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", "", cli.Usage(errors.New("the token has spaces or line breaks: the file must have the token alone"))
	}
	return base, token, nil
}
