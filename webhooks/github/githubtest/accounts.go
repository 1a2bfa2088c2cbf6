package githubtest

import (
	"cmp"
	"crypto/rsa"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Token is the owner of a token.
type Token struct {
	Login string // of a user; for an App its slug: it acts as "slug[bot]"
	App   bool   // may write check runs
	// Permissions of an App's token, such as "checks": "write"; nil: all. GitHub makes such
	// tokens with App.Permissions.
	Permissions map[string]string
}

// actor is the login of the token's writes.
func (t Token) actor() string {
	if t.App {
		return t.Login + "[bot]"
	}
	return t.Login
}

// may says whether a token suffices for an operation that needs one of the permissions,
// separated by "|"; "": none.
func (t Token) may(needs string, write bool) bool {
	return t.Permissions == nil || needs == "" || slices.ContainsFunc(strings.Split(needs, "|"), func(name string) bool {
		level := t.Permissions[name]
		return level == "write" || level == "read" && !write
	})
}

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

// verify checks an App's assertion as GitHub does.
func (a *App) verify(token string, now func() time.Time) error {
	var claims jwt.RegisteredClaims
	_, err := jwt.ParseWithClaims(token, &claims, func(*jwt.Token) (any, error) { return a.Key, nil },
		jwt.WithValidMethods([]string{"RS256"}), jwt.WithIssuer(strconv.FormatInt(a.ID, 10)),
		jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithTimeFunc(now))
	if err == nil && claims.ExpiresAt.Sub(now()) > 10*time.Minute {
		err = errors.New("it is valid for more than ten minutes")
	}
	return err
}

// grant returns the requested permissions that an App may have, or the first that it may
// not.
func (a *App) grant(asked map[string]string) (granted map[string]string, refused string) {
	if len(asked) == 0 {
		return maps.Clone(a.Permissions), ""
	}
	for name, level := range asked {
		has, known := a.Permissions[name]
		if a.Permissions != nil && (!known || level == "write" && has == "read") {
			return nil, name
		}
	}
	return maps.Clone(asked), ""
}

// issued is a token of an App.
type issued struct {
	Token
	until time.Time
}

// accounts are the users and Apps, their permissions and their tokens.
type accounts struct {
	*base
	ids         map[string]int64 // by login
	deleted     map[string]bool
	permissions map[string]string
	issued      map[string]issued // by token
}

// SetPermission sets a user's permission in the repository, as in Options.Permissions;
// "": none.
func (a *accounts) SetPermission(login, permission string) {
	defer a.lock()()
	a.permissions[login] = permission
}

// DeleteUser deletes an account. Its reviews stay without an author.
func (a *accounts) DeleteUser(login string) {
	defer a.lock()()
	a.deleted[login] = true
}

// authenticate returns the owner of a token: of an App's assertion, if the request is
// about the App itself.
func (a *accounts) authenticate(path, token string) (Token, *reply) {
	if app := a.o.App; path == "/app" || strings.HasPrefix(path, "/app/") {
		if app == nil {
			return Token{}, &notFound
		}
		if err := app.verify(token, a.o.Now); err != nil {
			return Token{}, problem(http.StatusUnauthorized, "A JSON web token could not be decoded: "+err.Error())
		}
		return Token{Login: app.Slug, App: true}, nil
	}
	if t, ok := a.o.Tokens[token]; ok {
		return t, nil
	}
	if t, ok := a.issued[token]; ok && a.o.Now().Before(t.until) {
		return t.Token, nil
	}
	return Token{}, problem(http.StatusUnauthorized, "Bad credentials")
}

// createToken makes a token that is valid for an hour.
func (a *accounts) createToken(c *call, b struct {
	Repositories []string
	Permissions  map[string]string
}) reply {
	app := a.o.App
	if app == nil || c.number("installation_id") != app.Installation {
		return notFound
	}
	for _, r := range b.Repositories {
		if r != a.o.Repo {
			return invalid("the App is not installed on %q", r)
		}
	}
	granted, refused := app.grant(b.Permissions)
	if refused != "" {
		return invalid("The permissions requested are not granted to this installation: %s", refused)
	}
	// As at GitHub: long, without a fixed length.
	id := a.id()
	token := fmt.Sprintf("ghs_%d_%d%s", app.ID, id, strings.Repeat("x", int(id%60)+100))
	until := a.now().Add(time.Hour)
	a.issued[token] = issued{Token{Login: app.Slug, App: true, Permissions: granted}, until}
	return created(obj{"token": token, "expires_at": stamp(until), "permissions": granted, "repository_selection": "selected"})
}

// getPermission has four permissions; a role between two is shown as the lower.
func (a *accounts) getPermission(c *call) reply {
	login := c.PathValue("username")
	if a.deleted[login] {
		return notFound
	}
	role := cmp.Or(a.permissions[login], "none")
	permission := cmp.Or(map[string]string{"maintain": "write", "triage": "read"}[role], role)
	user := a.userShape(login)
	user["role_name"] = role
	return ok(obj{"permission": permission, "role_name": role, "user": user})
}

func (a *accounts) getUser(c *call) reply {
	if c.who.App {
		return forbidden
	}
	return ok(a.userShape(c.who.Login))
}

// administers says whether a sender may read webhooks: administrators, and Apps with the
// permission.
func (a *accounts) administers(who Token) bool {
	return who.App || a.permissions[who.Login] == "admin" || who.Login == a.o.Owner
}

func (a *accounts) userID(login string) int64 {
	if a.ids[login] == 0 {
		a.ids[login] = int64(len(a.ids) + 1)
	}
	return a.ids[login]
}

func (a *accounts) userShape(login string) obj {
	id, kind := a.userID(login), "User"
	if isBot(login) {
		kind = "Bot"
	}
	return obj{"login": login, "id": id, "node_id": nodeID("User", id), "type": kind, "url": a.url + "/users/" + url.PathEscape(login)}
}

func (a *accounts) appShape(slug string) obj {
	id := a.userID(slug)
	return obj{"id": id, "slug": slug, "node_id": nodeID("App", id), "owner": a.userShape(a.o.Owner), "name": slug}
}

// association is a user's relation to the repository.
func (a *accounts) association(login string) string {
	switch {
	case login == a.o.Owner:
		return "OWNER"
	case a.permissions[login] != "":
		return "COLLABORATOR"
	case isBot(login):
		return "NONE"
	}
	return "CONTRIBUTOR"
}
