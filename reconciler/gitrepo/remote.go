package gitrepo

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	gitssh "github.com/go-git/go-git/v5/plumbing/transport/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"berth/reconciler"
	"berth/reconciler/gitrepo/object"
	"berth/schema"
)

// Credentials authenticate Berth at a remote. They print as asterisks.
type Credentials struct {
	User   string // HTTP user or SSH login; empty: "git"
	Token  string // HTTP password
	SSHKey []byte // private key, PEM
	Source string // setting and file of the secret, for messages
}

// String hides the secrets.
func (Credentials) String() string { return "***" }

// GoString hides the secrets from %#v.
func (Credentials) GoString() string { return "***" }

// AuthFunc returns the credentials for one call; it may read them on each call.
type AuthFunc func(ctx context.Context) (Credentials, error)

// remote is one URL with its transport and credentials.
type remote struct {
	url        string
	endpoint   *transport.Endpoint
	transport  transport.Transport
	ssh        bool
	local      bool // a local directory, accessed by git's own programs
	auth       AuthFunc
	knownHosts string
	timeout    time.Duration
	dialing    chan struct{} // holds a token while an SSH connection is set up
}

// newRemote checks the URL: https, ssh, http to this machine, or file. It rejects
// credentials in a URL, because URLs appear in logs.
func newRemote(raw string, auth AuthFunc, o Options) (*remote, error) {
	u, err := url.Parse(raw)
	if err == nil && u.Scheme == "file" && !o.Tenant {
		return newLocalRemote(u, o)
	}
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("repository URL %q: want https://HOST/PATH or ssh://USER@HOST/PATH", Redact(raw))
	}
	r := &remote{url: Redact(raw), auth: auth, knownHosts: o.KnownHosts, timeout: o.Timeout, dialing: make(chan struct{}, 1)}
	if _, has := u.User.Password(); has || (u.User != nil && u.Scheme != "ssh") {
		return nil, fmt.Errorf("repository URL %s holds credentials: take them out and configure a token", r.url)
	}
	switch u.Scheme {
	case "ssh":
		r.ssh = true
		r.transport = gitssh.DefaultClient
	case "http":
		if !o.AllowHTTP && !schema.IsLoopback(u.Hostname()) {
			return nil, fmt.Errorf("repository URL %s: plain http would show the token to the network; use https, or set allow_http "+
				"where the network is closed", r.url)
		}
		fallthrough
	case "https":
		r.transport = githttp.NewClientWithOptions(
			&http.Client{Transport: shortErrors{httpTransport(o.Timeout)}},
			&githttp.ClientOptions{RedirectPolicy: githttp.NoFollowRedirects})
	default:
		return nil, fmt.Errorf("repository URL %s: scheme %q is not one of https, http, ssh", r.url, u.Scheme)
	}
	if r.endpoint, err = transport.NewEndpoint(raw); err != nil {
		return nil, fmt.Errorf("repository URL %s: %w", r.url, err)
	}
	return r, nil
}

// httpTransport has a deadline for every phase. The whole call has one too.
func httpTransport(timeout time.Duration) *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: timeout,
		IdleConnTimeout:       90 * time.Second,
		MaxIdleConnsPerHost:   2,
		ForceAttemptHTTP2:     true,
	}
}

// maxComplaint bounds the bytes read of an error response, because go-git puts
// the whole response into the error text.
const maxComplaint = 4 << 10

// shortErrors is a transport that truncates error responses.
type shortErrors struct{ http.RoundTripper }

func (s shortErrors) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := s.RoundTripper.RoundTrip(req)
	if err == nil && (res.StatusCode < 200 || res.StatusCode > 299) {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(res.Body, maxComplaint), res.Body}
	}
	return res, err
}

// Redact removes user and password from a URL for messages.
func Redact(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "(not a URL)"
	}
	if u.Scheme == "ssh" && u.User != nil {
		u.User = url.User(u.User.Username())
	} else {
		u.User = nil
	}
	return u.String()
}

// login holds the authentication of one call.
type login struct {
	remote *remote
	method transport.AuthMethod // nil: no credentials
	source string               // Credentials.Source
}

// login reads the credentials.
func (r *remote) login(ctx context.Context) (login, error) {
	if r.local {
		return login{remote: r}, nil
	}
	var c Credentials
	if r.auth != nil {
		var err error
		if c, err = r.auth(ctx); err != nil {
			return login{}, &reconciler.OperatorError{Err: fmt.Errorf("credentials for %s: %w", r.url, err)}
		}
	}
	method, err := r.method(c)
	if err != nil {
		return login{}, &reconciler.OperatorError{Err: err}
	}
	return login{r, method, c.Source}, nil
}

// method converts the credentials for go-git; nil if there are no credentials.
func (r *remote) method(c Credentials) (transport.AuthMethod, error) {
	user := c.User
	if user == "" {
		user = "git"
	}
	switch {
	case r.ssh:
		if r.endpoint.User != "" && c.User == "" {
			user = r.endpoint.User
		}
		keys, err := gitssh.NewPublicKeys(user, c.SSHKey, "")
		if err != nil {
			return nil, fmt.Errorf("%s: %s is not a private key in PEM format without a passphrase; make one with ssh-keygen", r.url,
				cmp.Or(c.Source, "the SSH key"))
		}
		if r.knownHosts == "" {
			return nil, fmt.Errorf("%s needs a known_hosts file that pins its host key", r.url)
		}
		known, err := gitssh.NewKnownHostsDb(r.knownHosts)
		if err != nil {
			return nil, fmt.Errorf("known_hosts file %s: %w", r.knownHosts, err)
		}
		keys.HostKeyCallback = known.HostKeyCallback()
		keys.HostKeyAlgorithms = known.HostKeyAlgorithms(net.JoinHostPort(r.endpoint.Host,
			strconv.Itoa(cmp.Or(r.endpoint.Port, gitssh.DefaultPort))))
		return keys, nil
	case c.Token != "":
		return &githttp.BasicAuth{Username: user, Password: c.Token}, nil
	}
	return nil, nil
}

// explain returns an OperatorError with the next step if an operator must act. It
// hides the credential.
func (l login) explain(err error) error {
	if err = l.hide(err); err == nil || l.remote == nil {
		return err
	}
	url, source := l.remote.url, cmp.Or(l.source, "it was given")
	var mismatch *knownhosts.KeyError
	switch {
	case strings.Contains(err.Error(), "object-format=sha256"): // gitprotocol-capabilities(5); go-git fails at the first name
		err = ErrSHA256
	case l.remote.local:
		return l.remote.explainLocal(err)
	case errors.As(err, &mismatch):
		err = fmt.Errorf("%s: the SSH host key does not match %s; check the host's key, then update that file: %w", url,
			l.remote.knownHosts, err)
	case l.method == nil && errors.Is(err, transport.ErrAuthenticationRequired):
		err = fmt.Errorf("%s asks for a credential; set token, or ssh_key with an ssh:// URL: %w", url, err)
	case errors.Is(err, transport.ErrAuthenticationRequired), errors.Is(err, transport.ErrAuthorizationFailed), l.remote.ssh &&
		strings.Contains(err.Error(), "unable to authenticate"):
		err = fmt.Errorf("%s refused the credential %s; replace it, or let its owner read and push there: %w", url, source, err)
	case errors.Is(err, transport.ErrRepositoryNotFound):
		err = fmt.Errorf("%s: no repository is there that the credential %s may read; check the URL and the credential: %w", url, source,
			err)
	default:
		return err
	}
	return &reconciler.OperatorError{Err: err}
}

// hide removes the sent credential from an error, because some servers and
// proxies repeat the request in their response.
func (l login) hide(err error) error {
	basic, ok := l.method.(*githttp.BasicAuth)
	if !ok || err == nil {
		return err
	}
	sent := base64.StdEncoding.EncodeToString([]byte(basic.Username + ":" + basic.Password))
	text := strings.NewReplacer(basic.Password, "***", sent, "***", url.PathEscape(basic.Password), "***").Replace(err.Error())
	if text == err.Error() {
		return err
	}
	return &hidden{err, text}
}

// hidden is an error with another text.
type hidden struct {
	err  error
	text string
}

func (h *hidden) Error() string { return h.text }
func (h *hidden) Unwrap() error { return h.err }

// dial opens a session. Over SSH this sets up the connection, for which go-git
// has no deadline: a silent host would block forever. So dial abandons the
// attempt when ctx ends, and makes no second attempt before the first has ended.
func dial[S io.Closer](ctx context.Context, r *remote, open func() (S, error)) (session S, err error) {
	if !r.ssh {
		return open()
	}
	select {
	case r.dialing <- struct{}{}:
	case <-ctx.Done():
		return session, fmt.Errorf("an earlier connection still hangs: %w", ctx.Err())
	}
	type result struct {
		session S
		err     error
	}
	done := make(chan result, 1)
	go func() {
		s, err := open()
		<-r.dialing
		done <- result{s, err}
	}()
	select {
	case got := <-done:
		return got.session, got.err
	case <-ctx.Done():
		go func() {
			if late := <-done; late.err == nil {
				_ = late.session.Close() // the caller has timed out
			}
		}()
		return session, fmt.Errorf("connect: %w", ctx.Err())
	}
}

// download is one session with git-upload-pack.
type download struct {
	remote  *remote
	login   login // login of the session
	session transport.UploadPackSession
	refs    map[string]plumbing.Hash
	caps    *capability.List
	used    bool
}

// advertise opens a session and reads the remote's refs, once per fetch.
func (r *remote) advertise(ctx context.Context) (*download, error) {
	login, err := r.login(ctx)
	if err != nil {
		return nil, err
	}
	s, err := dial(ctx, r, func() (transport.UploadPackSession, error) {
		return r.transport.NewUploadPackSession(r.endpoint, login.method)
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.url, login.explain(err))
	}
	adv, err := s.AdvertisedReferencesContext(ctx)
	if errors.Is(err, transport.ErrEmptyRemoteRepository) {
		return &download{remote: r, login: login, session: s, caps: capability.NewList()}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.url, login.explain(errors.Join(err, s.Close())))
	}
	return &download{remote: r, login: login, session: s, refs: adv.References, caps: adv.Capabilities}, nil
}

func (d *download) close() error { return d.session.Close() }

// tip returns the commit of a branch at the remote, or the zero hash.
func (d *download) tip(branch string) plumbing.Hash { return d.refs["refs/heads/"+branch] }

var (
	// errStore means that a store could not import the remote's pack.
	errStore = errors.New("store cannot be written")
)

// order describes a fetch.
type order struct {
	into         *object.Store
	wants, haves []plumbing.Hash
	depth        int   // depth of a shallow history; 0: all of it
	limit        int64 // maximum pack size in bytes; 0: no limit
	strict       bool  // reject faulty objects; needs a limit
}

// fetch fetches the wanted commits and their new history into a store. It returns
// the pack size in bytes.
func (d *download) fetch(ctx context.Context, o order) (size int64, err error) {
	defer func() { err = d.login.explain(err) }()
	s := o.into
	if d.used && (d.remote.ssh || d.remote.local) { // one request per session
		again, err := d.remote.advertise(ctx)
		if err != nil {
			return 0, err
		}
		defer again.close() //nolint:errcheck // the pack was read to its end
		return again.fetch(ctx, o)
	}
	d.used = true
	shallow, err := s.Shallow()
	if err != nil {
		return 0, err
	}
	req, err := d.request(o, shallow)
	if err != nil {
		return 0, err
	}
	res, err := d.session.UploadPack(ctx, req)
	if err != nil {
		return 0, fmt.Errorf("fetch from %s: %w", d.remote.url, err)
	}
	defer res.Close() //nolint:errcheck // the pack was read to its end
	// The pack is first written to a file, so that the store is locked for the
	// import only and not for the transfer.
	spool, err := os.CreateTemp(s.Dir, "incoming-")
	if err != nil {
		return 0, errors.Join(errStore, err)
	}
	defer os.Remove(spool.Name()) //nolint:errcheck // reopening the store removes leftovers
	defer spool.Close()           //nolint:errcheck // read only by us
	if size, err = io.Copy(spool, packOf(res, req.Capabilities, o.limit)); err != nil {
		return 0, fmt.Errorf("fetch from %s: %w", d.remote.url, err)
	}
	if o.limit > 0 && size > o.limit {
		return size, object.ErrTooLarge
	}
	if _, err := spool.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	if err := s.TakePack(ctx, spool, size, o.limit > 0, o.strict); err != nil {
		return size, fmt.Errorf("pack from %s: %w: %w", d.remote.url, errStore, err)
	}
	if len(res.Shallows) > 0 {
		return size, s.SetShallow(append(shallow, res.Shallows...))
	}
	return size, nil
}

// request asks for what an order wants. The server must know the boundary of our shallow history. Else it leaves out
// objects that only older commits contain.
func (d *download) request(o order, shallow []plumbing.Hash) (*packp.UploadPackRequest, error) {
	req := packp.NewUploadPackRequestFromCapabilities(d.caps)
	req.Wants, req.Haves, req.Depth, req.Shallows = o.wants, o.haves, packp.DepthCommits(o.depth), shallow
	if o.depth > 0 || len(shallow) > 0 {
		if err := req.Capabilities.Set(capability.Shallow); err != nil {
			return nil, err
		}
	}
	if d.caps.Supports(capability.NoProgress) {
		if err := req.Capabilities.Set(capability.NoProgress); err != nil {
			return nil, err
		}
	}
	return req, nil
}

// packOf reads the pack in a response, and one byte beyond a limit; 0: no limit.
func packOf(response io.Reader, caps *capability.List, limit int64) io.Reader {
	switch {
	case caps.Supports(capability.Sideband64k):
		response = sideband.NewDemuxer(sideband.Sideband64k, response)
	case caps.Supports(capability.Sideband):
		response = sideband.NewDemuxer(sideband.Sideband, response)
	}
	if limit > 0 {
		return io.LimitReader(response, limit+1)
	}
	return response
}

// push moves a branch from old to commit by compare-and-swap and sends pack. The
// zero hash as old means that the branch must not exist. Over HTTP this is one
// request: old is known, so the ref advertisement is not needed.
//
// After any error, push reads the branch at the remote, because neither an error
// text nor a lost response proves the outcome. The push succeeded if the branch
// is at commit, unless the remote reported that it refused this push. In that
// case another process pushed the same commit. The error is
// reconciler.ErrConflict if another process moved the branch.
func (r *remote) push(ctx context.Context, branch string, old, commit plumbing.Hash, pack []byte) error {
	bounded, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	refused, pushed := r.send(bounded, branch, old, commit, pack)
	if pushed == nil {
		return nil
	}
	ask, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	d, err := r.advertise(ask)
	if err != nil {
		return fmt.Errorf("push to %s at %s: %w; whether it arrived is not known: %w", branch, r.url, pushed, err)
	}
	defer d.close() //nolint:errcheck // nothing was asked of it but the refs
	switch tip := d.tip(branch); {
	case tip == commit && !refused:
		return nil
	case tip == old:
		return fmt.Errorf("push to %s at %s: %w", branch, r.url, pushed)
	}
	return fmt.Errorf("push to %s at %s: %w (the branch is at %s)", branch, r.url, reconciler.ErrConflict, d.tip(branch))
}

// send makes one push. refused is true if the remote reports that it did not move
// the branch.
func (r *remote) send(ctx context.Context, branch string, old, commit plumbing.Hash, pack []byte) (refused bool, err error) {
	login, err := r.login(ctx)
	if err != nil {
		return false, err
	}
	defer func() { err = login.explain(err) }()
	s, err := dial(ctx, r, func() (transport.ReceivePackSession, error) {
		return r.transport.NewReceivePackSession(r.endpoint, login.method)
	})
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if r.ssh || r.local {
		if _, err := s.AdvertisedReferencesContext(ctx); err != nil {
			return false, err
		}
	}
	req := packp.NewReferenceUpdateRequest()
	for _, c := range []capability.Capability{capability.ReportStatus, capability.Agent} {
		args := []string{capability.DefaultAgent()}
		if c != capability.Agent {
			args = nil
		}
		if err := req.Capabilities.Set(c, args...); err != nil {
			return false, err
		}
	}
	name := plumbing.NewBranchReferenceName(branch)
	req.Commands = []*packp.Command{{Name: name, Old: old, New: commit}}
	req.Packfile = io.NopCloser(bytes.NewReader(pack))
	report, err := s.ReceivePack(ctx, req)
	if err != nil {
		return report != nil && report.Error() != nil, err
	}
	if report == nil {
		return false, errors.New("empty answer")
	}
	if !slices.ContainsFunc(report.CommandStatuses, func(s *packp.CommandStatus) bool { return s.ReferenceName == name }) {
		return false, fmt.Errorf("the answer does not name %s", name)
	}
	return false, nil
}

// CheckURL returns an error if the URL of o is not usable.
func CheckURL(o Options) error {
	_, err := newRemote(o.URL, o.Auth, o)
	return err
}
