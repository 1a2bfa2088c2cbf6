package artifact

import (
	"context"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"berth/runtimes"
	"berth/schema"
)

// maxRedirects is the number of redirects within a server.
const maxRedirects = 5

// http reads a file of an HTTP server.
func (l *Looker) http(ctx context.Context, source *schema.ArtifactSource, reference string) (bytesFound, error) {
	host := source.Spec.Host
	if source.Spec.Credential != "" {
		return bytesFound{}, unknown(runtimes.ReasonCredentialUnused,
			"only a registry exchanges a secret for a token: remove the credential of the source %s", source.Key.Name)
	}
	g := &guard{inner: l.client, scheme: l.scheme(host), host: host, redirects: true}
	client := &http.Client{Transport: g, CheckRedirect: func(req *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects || !shared(source, req.URL.Path) {
			return g.keep(&redirectError{host})
		}
		return nil
	}}
	u := url.URL{Scheme: g.scheme, Host: host, Path: "/" + reference}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return bytesFound{}, unknown(runtimes.ReasonBadReference, "%s and the reference are not a valid URL", host)
	}
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := client.Do(req)
	if err != nil {
		return bytesFound{}, g.failed(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusGone:
		return bytesFound{}, absent("not found at %s: push it, or correct the reference", host)
	case http.StatusUnauthorized, http.StatusForbidden:
		return bytesFound{}, unknown(runtimes.ReasonUnauthorized, "%s requires a login", host)
	default:
		return bytesFound{}, unknown(runtimes.ReasonStatus, "%s answers with status %d", host, resp.StatusCode)
	}
	if resp.Header.Get("Content-Encoding") != "" {
		return bytesFound{}, unknown(runtimes.ReasonEncoded, "%s sends the file with a content encoding", host)
	}
	if resp.ContentLength > l.o.MaxBytes {
		return bytesFound{}, tooLarge(l.o.MaxBytes)
	}
	digest, size, err := sum(ctx, resp.Body, l.o.MaxBytes)
	if err != nil {
		return bytesFound{}, unreachable(ctx, host, err)
	}
	return bytesFound{digest: digest, size: size}, nil
}

// shared reports whether a path is in one of the source's repositories, if it has any.
func shared(source *schema.ArtifactSource, p string) bool {
	if len(source.Spec.Repositories) == 0 {
		return true
	}
	return path.Clean(p) == p && slices.ContainsFunc(source.Spec.Repositories, func(r string) bool {
		return p == "/"+r || strings.HasPrefix(p, "/"+r+"/")
	})
}
