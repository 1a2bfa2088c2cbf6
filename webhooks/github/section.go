package github

import (
	"cmp"
	_ "embed"
	"fmt"
	"net/url"
	"strings"
	"time"

	"berth/reconciler"
	"berth/schema"
	"berth/webhooks/forge"
	"berth/webhooks/secret"
)

//go:embed section.cue
var sectionCUE string

// Kind is GitHub as the daemon knows it: GitHub.com, GHE.com and Enterprise Server.
func Kind() forge.Kind {
	return forge.Kind{
		Name: "github", CUE: sectionCUE, New: func() forge.Section { return &Config{} }, Webhook: Webhook(), IsPage: isPage,
		OpenLimiter: func(path string, now time.Time, onError func(error)) (forge.Limiter, error) {
			return openPacer(path, now, onError)
		},
		PullRefs: reconciler.PullRefs{
			Head:   func(number int) string { return fmt.Sprintf("refs/pull/%d/head", number) },
			Groups: func(branch string) string { return queueRefs + branch + "/" },
		},
	}
}

// isPage reports whether a URL is of github.com and not OWNER/REPOSITORY there.
func isPage(u *url.URL) bool {
	owner, name, _ := strings.Cut(strings.Trim(u.Path, "/"), "/")
	return strings.EqualFold(u.Hostname(), "github.com") && (owner == "" || name == "" || strings.Contains(name, "/"))
}

// Config is the section forge of berth.yaml. section.cue explains its fields.
type Config struct {
	APIURL            string      `json:"api_url"`
	Owner             string      `json:"owner"`
	Repository        string      `json:"repository"`
	Token             *secret.Ref `json:"token"`
	App               *AppConfig  `json:"app"`
	Login             string      `json:"login"`
	Report            Report      `json:"report"`
	WebhookSecret     secret.Ref  `json:"webhook_secret"`
	WebhookSecretNext *secret.Ref `json:"webhook_secret_next"`
}

// AppConfig names an installed GitHub App.
type AppConfig struct {
	ID           int64      `json:"id"`
	Installation int64      `json:"installation"`
	Key          secret.Ref `json:"key"`
}

// Config is a section of the daemon's configuration.
var _ forge.Section = (*Config)(nil)

// publicAPI is the address of the API of github.com.
const publicAPI = "https://api.github.com"

// Complete implements forge.Section.
func (c *Config) Complete() {
	c.APIURL = cmp.Or(c.APIURL, publicAPI+"/")
	if c.Report == "" && c.Token != nil {
		c.Report = Statuses
	}
}

// FullName implements forge.Section.
func (c *Config) FullName() string { return c.Owner + "/" + c.Repository }

// IsOwn implements forge.Section. Only an App's login proves Berth's own writing: a user
// may also use the user's token.
func (c *Config) IsOwn(sender string) bool {
	return strings.HasSuffix(c.Login, "[bot]") && strings.EqualFold(sender, c.Login)
}

// Identity implements forge.Section.
func (c *Config) Identity() string {
	if c.App != nil {
		return fmt.Sprintf("App %d, installation %d at %s", c.App.ID, c.App.Installation, c.APIURL)
	}
	return fmt.Sprintf("the token in %s%s at %s", c.Token.File, c.Token.Env, c.APIURL)
}

// WebhookSecrets implements forge.Section.
func (c *Config) WebhookSecrets() []forge.SecretField {
	out := []forge.SecretField{{Field: "forge.webhook_secret", Ref: &c.WebhookSecret}}
	if c.WebhookSecretNext != nil {
		out = append(out, forge.SecretField{Field: "forge.webhook_secret_next", Ref: c.WebhookSecretNext})
	}
	return out
}

// KeyFields implements forge.Section.
func (c *Config) KeyFields() []string { return []string{"forge.app.key"} }

// Conflicts implements forge.Section.
func (c *Config) Conflicts(check forge.Check) {
	hasApp, isBot := c.App != nil, strings.HasSuffix(c.Login, "[bot]")
	check(c.Token == nil && !hasApp, "forge", "forge.token",
		"missing: add token: {file: /PATH}, or app: {id: …, installation: …, key: {file: /PATH}}")
	check(c.Token != nil && hasApp, "forge.app", "forge.app", "there is a token as well: take one of the two out")
	check(strings.HasSuffix(c.Repository, ".git"), "forge.repository", "forge.repository",
		"the forge names it without .git: write "+strings.TrimSuffix(c.Repository, ".git"))
	api, err := url.Parse(c.APIURL)
	check(err == nil && api.Scheme == "http" && !schema.IsLoopback(api.Hostname()), "forge.api_url", "forge.api_url",
		"plain HTTP shows the token to the network: use https://")
	check(hasApp && c.Login != "" && !isBot, "forge.login", "forge.login",
		"an App acts under its slug and [bot]: write "+c.Login+"[bot], if that is its slug")
	check(hasApp && c.Login == "", "forge.app", "forge.login",
		"an App cannot ask who it is: add its slug and [bot], such as berth-lab[bot]")
	check(!hasApp && c.Report == Checks && !isBot, "forge.report", "forge.report",
		"GitHub lets only an App write check runs: remove it to report commit statuses with this token, or configure app instead of "+
			"token; if the token is an App's, say whose with login: SLUG[bot]")
	check(hasApp && c.Report == Statuses, "forge.report", "forge.report",
		"an App writes check runs: take report out, or use a token instead of the App")
}

// Warnings implements forge.Section. They are about a forge that is not where the
// repository is, or that lacks a credential.
func (c *Config) Warnings(repository string, hasToken bool) []string {
	out := c.addressWarnings(repository)
	add := func(wrong bool, format string, a ...any) {
		if wrong {
			out = append(out, fmt.Sprintf(format, a...))
		}
	}
	add(c.Token != nil && !hasToken && strings.HasPrefix(repository, "https://"),
		"repository.token: missing: forge.token is for the API, and Berth pushes its branches with repository.token")
	if token, err := c.Token.Read(); c.Token != nil && err == nil && isPersonal(token) {
		isChecks := c.Report == Checks
		add(isChecks, "forge.report: GitHub lets only an App write check runs, and the token is a user's: take report out, or use the "+
			"App's key (forge.app)")
		add(!isChecks && strings.HasSuffix(c.Login, "[bot]"), "forge.login: the token is a user's, and %s is an App: write the login of "+
			"the user, by which Berth knows its own comments", c.Login)
	}
	if app := c.App; app != nil {
		add(strings.HasPrefix(cmp.Or(c.APIURL, publicAPI), publicAPI) && app.Installation < app.ID, "forge.app: at github.com an "+
			"installation has a larger number than its App: are id (%d) and installation (%d) swapped?", app.ID, app.Installation)
	}
	now, err := c.WebhookSecret.Read()
	next, other := c.WebhookSecretNext.Read()
	add(c.WebhookSecretNext != nil && err == nil && other == nil && now == next,
		"forge.webhook_secret_next: is the same as webhook_secret: take it out, or make another one")
	return out
}

// addressWarnings are about an API or a repository at another server than the other.
func (c *Config) addressWarnings(repository string) (out []string) {
	path, isPublic := strings.CutPrefix(repository, "https://github.com/")
	if isPublic && !strings.EqualFold(strings.TrimSuffix(strings.TrimSuffix(path, "/"), ".git"), c.FullName()) {
		out = append(out, fmt.Sprintf("forge.repository: the pull requests are those of %s, and repository.url is another repository",
			c.FullName()))
	}
	if at, err := url.Parse(repository); err == nil && !isPublic && at.Scheme == "https" && strings.HasPrefix(c.APIURL, publicAPI) &&
		!strings.HasSuffix(at.Hostname(), "github.com") {
		out = append(out, fmt.Sprintf("forge.api_url: missing: pull requests would be looked for at github.com, and repository.url is at "+
			"%s: write its API, such as %s", at.Hostname(), apiOf(at.Hostname())))
	}
	api, err := url.Parse(c.APIURL)
	if err != nil || c.APIURL == "" {
		return out
	}
	switch host := api.Hostname(); {
	case isPublic && host != "api.github.com":
		out = append(out, fmt.Sprintf("forge.api_url: is of %s, and repository.url is at github.com: leave the line out, or write "+
			"https://api.github.com/", host))
	case !strings.HasPrefix(host, "api.") && !schema.IsLoopback(host) && !strings.Contains(api.Path, "/api/"):
		out = append(out, "forge.api_url: the API of GitHub Enterprise Server is below /api/v3/ of its host")
	}
	return out
}

// apiOf returns the address of the API of a GitHub on another host: an Enterprise
// Server, or GHE.com.
func apiOf(host string) string {
	if strings.HasSuffix(host, ".ghe.com") {
		return "https://api." + host + "/"
	}
	return "https://" + host + "/api/v3/"
}

// isPersonal reports whether a token belongs to a user, by its prefix (GitHub's "About
// authentication to GitHub").
func isPersonal(token string) bool {
	return strings.HasPrefix(token, "ghp_") || strings.HasPrefix(token, "github_pat_") || strings.HasPrefix(token, "gho_")
}
