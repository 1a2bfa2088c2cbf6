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

	"berth/schema"
)

// Secrets is where the operator's secrets are. What they are called is all that
// an estate says of them.
type Secrets interface {
	// Secret is the secret of a name, read anew at each call so that a rotated one
	// is taken up.
	Secret(ctx context.Context, name string) (Credential, error)
}

// Credential is a secret that lives long, and what the operator lets it be used
// for. An estate can name it, and cannot take it elsewhere.
type Credential struct {
	Username string
	Password Hidden
	Hosts    []string // the registry and its token endpoint, with their ports if they have any
	Tenants  []string // whose sources may name it, besides the platform's
}

// Hidden is a text that prints as "***", whichever way it is printed.
type Hidden string

// Format implements fmt.Formatter.
func (Hidden) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "***") }

// MarshalText implements encoding.TextMarshaler.
func (Hidden) MarshalText() ([]byte, error) { return []byte("***"), nil }

// LogValue implements slog.LogValuer.
func (Hidden) LogValue() slog.Value { return slog.StringValue("***") }

// Token reads one repository of one registry until it expires (requirement B3:
// short-lived, of one task). It is made for a task, handed to it, and kept
// nowhere.
type Token struct {
	Host, Repository string
	Value            Hidden
	Expires          time.Time
}

// leastLife is how long a token lives that does not say so, by the distribution
// project's specification of tokens.
const leastLife = time.Minute

// Token asks the registry of a source for a token that reads what a reference
// names. It is nil, without an error, where the registry wants none.
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
		return nil, unknown("Status", "%s answers as no registry does, with the status %d", host, answer.StatusCode)
	case err != nil:
		return nil, g.failed(ctx, err)
	case challenge.Scheme == "":
		return nil, nil
	case !strings.EqualFold(challenge.Scheme, "bearer"):
		return nil, unknown("NoTokens", "%s gives no tokens and asks for the secret itself, which it does not get: set up a token endpoint", host)
	}
	challenge.Insecure = l.plain(host)
	realm, err := url.Parse(challenge.Parameters["realm"])
	if err != nil || realm.Host == "" || realm.User != nil || realm.Scheme != l.scheme(realm.Host) {
		return nil, unknown("RealmRefused", "%s names no token endpoint that may be asked", host)
	}
	auth, hosts, err := l.auth(ctx, source)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(hosts, realm.Host) {
		// The name is the server's; people find it in the answer of the registry.
		where := "artifacts.token_hosts, below " + host
		if source.Spec.Credential != "" {
			where = "artifacts.secrets, beside the secret's hosts"
		}
		return nil, unknown("RealmRefused", "%s gives tokens at another host, which curl -i %s://%s/v2/ names as realm: if it is to be trusted, name it in berth.yaml, in %s", host, l.scheme(host), host, where)
	}
	to := &guard{inner: l.client, scheme: realm.Scheme, host: realm.Host}
	got, err := transport.Exchange(ctx, tag.Registry, auth, to, []string{tag.Scope(transport.PullScope)}, challenge)
	switch {
	case errors.As(err, &answer) && (answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden):
		return nil, unknown("Unauthorized", "%s gives no token for %s: see whether the secret is right and may read it", host, tag.RepositoryStr())
	case errors.As(err, &answer):
		return nil, unknown("Status", "the token endpoint of %s answers with the status %d", host, answer.StatusCode)
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

// auth is what a source may show at a token endpoint, and the hosts it may show
// it to. A source without a credential shows nothing, to its own host and to
// those that the operator named for that.
func (l *Looker) auth(ctx context.Context, source *schema.ArtifactSource) (authn.Authenticator, []string, error) {
	what := source.Spec.Credential
	if what == "" {
		return authn.Anonymous, append([]string{source.Spec.Host}, l.o.TokenHosts[source.Spec.Host]...), nil
	}
	refuse := func(why string) (authn.Authenticator, []string, error) {
		return nil, nil, unknown("SecretRefused", "the secret %s, which the source %s names, %s", what, source.Key.Name, why)
	}
	if l.o.Secrets == nil {
		return refuse("is not there: berth.yaml names none")
	}
	c, err := l.o.Secrets.Secret(ctx, what)
	switch {
	case err != nil:
		return refuse("cannot be had: see artifacts.secrets in berth.yaml") // where it is, is nobody's but the operator's
	case source.Key.Tenant != "" && !slices.Contains(c.Tenants, source.Key.Tenant):
		return refuse("is not this tenant's to use: berth.yaml says whose it is")
	case !slices.Contains(c.Hosts, source.Spec.Host):
		return refuse("is not for this host: berth.yaml says which it may be sent to")
	}
	return authn.FromConfig(authn.AuthConfig{Username: c.Username, Password: string(c.Password)}), c.Hosts, nil
}

// tag reads a reference of a registry; one that names no tag has the tag "".
func (l *Looker) tag(source *schema.ArtifactSource, reference string) (name.Tag, error) {
	t, err := name.NewTag(source.Spec.Host+"/"+reference, name.WithDefaultTag(""))
	if err != nil {
		return name.Tag{}, unknown("BadReference", "the reference is no repository and tag")
	}
	if t.RegistryStr() != source.Spec.Host {
		return name.Tag{}, unknown("BadReference", "%s is another registry's name: declare the source with the host %s", source.Spec.Host, t.RegistryStr())
	}
	return t, nil
}
