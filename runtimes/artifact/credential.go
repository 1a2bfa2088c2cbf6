package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"berth/runtimes"
	"berth/schema"
)

// Secrets returns the operator's secrets. An estate knows only their names.
type Secrets interface {
	// Secret returns the secret of a name. It reads the secret at each call, so a
	// rotated one is used at once.
	Secret(ctx context.Context, name string) (Credential, error)
}

// Credential is a long-lived secret with its permitted use. An estate can name it but
// not send it to other hosts.
type Credential struct {
	Username string
	Password Hidden
	Hosts    []string // the registry and its token endpoint, with a port if they have one
	Tenants  []string // tenants whose sources may name it, besides the platform
}

// Hidden is text that always prints as "***".
type Hidden string

// Format implements fmt.Formatter.
func (Hidden) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "***") }

// MarshalText implements encoding.TextMarshaler.
func (Hidden) MarshalText() ([]byte, error) { return []byte("***"), nil }

// LogValue implements slog.LogValuer.
func (Hidden) LogValue() slog.Value { return slog.StringValue("***") }

// Token reads one repository of one registry until it expires (requirement B3:
// short-lived, for one task). It is not stored.
type Token struct {
	Host, Repository string
	Value            Hidden
	Expires          time.Time
}

// leastLife is the lifetime of a token without one, by the specification of the
// distribution project.
const leastLife = time.Minute

// Token requests a token for the repository of a reference from the registry of a
// source. It returns nil without an error if the registry needs none.
func (l *Looker) Token(ctx context.Context, source *schema.ArtifactSource, reference string) (*Token, error) {
	tag, err := l.tag(source, reference)
	if err != nil {
		return nil, err
	}
	host := source.Spec.Host
	g := &guard{inner: l.client, scheme: l.scheme(host), host: host}
	challenge, err := transport.Ping(ctx, tag.Registry, g)
	var answer *transport.Error
	switch {
	case errors.As(err, &answer):
		return nil, unknown(runtimes.ReasonStatus, "%s does not answer like a registry: status %d", host, answer.StatusCode)
	case err != nil:
		return nil, g.failed(ctx, err)
	case challenge.Scheme == "":
		return nil, nil
	case !strings.EqualFold(challenge.Scheme, "bearer"):
		return nil, unknown(runtimes.ReasonNoTokens,
			"%s issues no tokens and requires the secret itself, which Berth never sends: set up a token endpoint", host)
	}
	challenge.Insecure = l.plain(host)
	realm, err := url.Parse(challenge.Parameters["realm"])
	if err != nil || realm.Host == "" || realm.User != nil || realm.Scheme != l.scheme(realm.Host) {
		return nil, unknown(runtimes.ReasonRealmRefused, "%s names no allowed token endpoint", host)
	}
	auth, hosts, err := l.auth(ctx, source)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(hosts, realm.Host) {
		// The name comes from the server, so it is not in the message.
		where := "artifacts.token_hosts, below " + host
		if source.Spec.Credential != "" {
			where = "artifacts.secrets, beside the secret's hosts"
		}
		return nil, unknown(runtimes.ReasonRealmRefused,
			"%s issues tokens at another host, the realm in the output of curl -i %s://%s/v2/: if you trust it, list it in berth.yaml, "+
				"in %s",
			host, l.scheme(host), host, where)
	}
	to := &guard{inner: l.client, scheme: realm.Scheme, host: realm.Host}
	got, err := transport.Exchange(ctx, tag.Registry, auth, to, []string{tag.Scope(transport.PullScope)}, challenge)
	switch {
	case errors.As(err, &answer) && (answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden):
		return nil, unknown(runtimes.ReasonUnauthorized,
			"%s issues no token for %s: check that the secret is right and may read it", host, tag.RepositoryStr())
	case errors.As(err, &answer):
		return nil, unknown(runtimes.ReasonStatus, "the token endpoint of %s answers with status %d", host, answer.StatusCode)
	case err != nil:
		return nil, to.failed(ctx, err)
	}
	value := got.Token
	if value == "" {
		value = got.AccessToken
	}
	life := time.Duration(min(max(got.ExpiresIn, 0), 1<<31)) * time.Second
	return &Token{Host: host, Repository: tag.RepositoryStr(), Value: Hidden(value), Expires: l.o.Now().Add(max(life, leastLife))}, nil
}

// auth returns the secret of a source for token endpoints, and the hosts it may be sent
// to. A source without a credential is anonymous at its own host and at its TokenHosts.
func (l *Looker) auth(ctx context.Context, source *schema.ArtifactSource) (authn.Authenticator, []string, error) {
	what := source.Spec.Credential
	if what == "" {
		return authn.Anonymous, append([]string{source.Spec.Host}, l.o.TokenHosts[source.Spec.Host]...), nil
	}
	refuse := func(why string) (authn.Authenticator, []string, error) {
		return nil, nil, unknown(runtimes.ReasonSecretRefused, "the secret %s of the source %s %s", what, source.Key.Name, why)
	}
	if l.o.Secrets == nil {
		return refuse("does not exist: berth.yaml has no artifacts.secrets")
	}
	c, err := l.o.Secrets.Secret(ctx, what)
	switch {
	case err != nil:
		return refuse("is unreadable: see artifacts.secrets in berth.yaml") // without the file name, which only the operator may know
	case source.Key.Tenant != "" && !slices.Contains(c.Tenants, source.Key.Tenant):
		return refuse("is not for this tenant: see artifacts.secrets in berth.yaml")
	case !slices.Contains(c.Hosts, source.Spec.Host):
		return refuse("is not for this host: see artifacts.secrets in berth.yaml")
	}
	return authn.FromConfig(authn.AuthConfig{Username: c.Username, Password: string(c.Password)}), c.Hosts, nil
}

// tag parses a reference. Without a tag it has the tag "".
func (l *Looker) tag(source *schema.ArtifactSource, reference string) (name.Tag, error) {
	t, err := name.NewTag(source.Spec.Host+"/"+reference, name.WithDefaultTag(""))
	if err != nil {
		return name.Tag{}, unknown(runtimes.ReasonBadReference, "the reference is not a repository with an optional tag")
	}
	if t.RegistryStr() != source.Spec.Host {
		return name.Tag{}, unknown(runtimes.ReasonBadReference,
			"%s is an alias: declare the source with the host %s", source.Spec.Host, t.RegistryStr())
	}
	return t, nil
}
