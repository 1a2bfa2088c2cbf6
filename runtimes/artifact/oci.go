package artifact

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"berth/runtimes"
	"berth/schema"
)

// maxManifest is the maximum size of a manifest in the distribution specification.
const maxManifest = 4 << 20

// manifests are the media types of manifests.
var manifests = []string{
	string(types.OCIManifestSchema1), string(types.OCIImageIndex),
	string(types.DockerManifestSchema2), string(types.DockerManifestList),
}

// oci reads the manifest of the reference's tag or, without a tag, of the digest. It
// computes the digest from the bytes and does not trust the registry's header.
func (l *Looker) oci(ctx context.Context, source *schema.ArtifactSource, reference, digest string) (bytesFound, error) {
	tag, err := l.tag(source, reference)
	if err != nil {
		return bytesFound{}, err
	}
	id := tag.TagStr()
	if id == "" {
		id = digest
	}
	if id == "" {
		return bytesFound{}, unknown(runtimes.ReasonNoTag, "the reference has no tag, so the manifest is unknown: add the digest")
	}
	token, err := l.Token(ctx, source, reference)
	if err != nil {
		return bytesFound{}, err
	}
	return l.manifest(ctx, tag, id, token)
}

func (l *Looker) manifest(ctx context.Context, tag name.Tag, id string, token *Token) (bytesFound, error) {
	host := tag.RegistryStr()
	g := &guard{inner: l.client, scheme: l.scheme(host), host: host}
	u := url.URL{Scheme: g.scheme, Host: host, Path: "/v2/" + tag.RepositoryStr() + "/manifests/" + id}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return bytesFound{}, unknown(runtimes.ReasonBadReference, "%s and the reference are not a valid URL", host)
	}
	for _, m := range manifests {
		req.Header.Add("Accept", m)
	}
	if token != nil {
		req.Header.Set("Authorization", "Bearer "+string(token.Value))
	}
	resp, err := (&http.Client{Transport: g}).Do(req)
	if err != nil {
		return bytesFound{}, g.failed(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if err := transport.CheckError(resp, http.StatusOK); err != nil {
		return bytesFound{}, refusal(host, err)
	}
	sha, size, err := sum(ctx, resp.Body, maxManifest)
	if err != nil {
		return bytesFound{}, unreachable(ctx, host, err)
	}
	found := bytesFound{digest: sha, size: size}
	if m := resp.Header.Get("Content-Type"); slices.Contains(manifests, m) {
		found.mediaType = m
	}
	return found, nil
}

// refusal returns the error of a registry's answer. Only an error of the registry
// protocol means absent: a page of a proxy in front of the registry does not.
func refusal(host string, err error) error {
	var answer *transport.Error
	if !errors.As(err, &answer) {
		return unknown(runtimes.ReasonUnreachable, "%s closed the connection", host)
	}
	says := func(codes ...transport.ErrorCode) bool {
		return slices.ContainsFunc(answer.Errors, func(d transport.Diagnostic) bool { return slices.Contains(codes, d.Code) })
	}
	switch {
	case answer.StatusCode == http.StatusNotFound && says(transport.ManifestUnknownErrorCode, transport.NameUnknownErrorCode):
		return absent("not found at %s: push it, or correct the reference", host)
	case answer.StatusCode == http.StatusUnauthorized, answer.StatusCode == http.StatusForbidden:
		return unknown(runtimes.ReasonUnauthorized, "%s refuses access: check the source's credential", host)
	}
	return unknown(runtimes.ReasonStatus, "%s answers with status %d", host, answer.StatusCode)
}
