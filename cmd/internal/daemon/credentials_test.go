package daemon

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
	"berth/webhooks/github"
	"berth/webhooks/github/githubtest"
)

func put(t *testing.T, path, text string) string {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// A GitHub App needs no other token, and its key may be replaced while the daemon
// runs.
func TestAppIsEnough(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := gittest.New(t, map[string]string{"platform/x": "1"})
	var keys []*rsa.PrivateKey
	var pems []string
	for range 2 {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		require.NoError(t, err)
		keys = append(keys, key)
		pems = append(pems, string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})))
	}
	app := &githubtest.App{ID: 7, Installation: 70, Slug: "berth", Key: &keys[0].PublicKey}
	forge, err := githubtest.New(githubtest.Options{RepoDir: s.Dir, Owner: "lab", Repo: "estate", App: app,
		Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(forge.Close)
	keyFile := put(t, filepath.Join(dir, "key.pem"), pems[0])
	c, err := ReadConfig(put(t, filepath.Join(dir, "berth.yaml"), fmt.Sprintf(`
repository: {url: %q, directory: %s}
forge:
  kind: github
  api_url: %q
  owner: lab
  repository: estate
  login: berth[bot]
  app: {id: 7, installation: 70, key: {file: %s}}
  webhook_secret: {env: S}
authority: {trust_main: true}
`, forge.CloneURL(), filepath.Join(dir, "mirror"), forge.APIURL(), keyFile)))
	require.NoError(t, err)
	tokens, err := ofGitHub(c).Tokens()
	require.NoError(t, err)
	access, err := c.Forge.Access()
	require.NoError(t, err)
	first, err := tokens.Report(t.Context())
	require.NoError(t, err)
	again, err := tokens.Report(t.Context())
	require.NoError(t, err)
	require.Equal(t, first, again, "one token, while it lasts")

	r, err := gitrepo.Open(t.Context(),
		gitrepo.Options{URL: c.Repository.URL, Dir: c.Repository.Directory, Auth: c.repositoryAuth(access.Git)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	tips, err := r.Fetch(t.Context())
	require.NoError(t, err)
	require.Equal(t, s.Tip("main"), tips.Main)

	// The token for reports cannot read files; the token for files cannot report.
	speaker, err := gitrepo.Open(t.Context(), gitrepo.Options{
		URL: c.Repository.URL, Dir: filepath.Join(dir, "other"),
		Auth: func(ctx context.Context) (gitrepo.Credentials, error) {
			token, err := tokens.Report(ctx)
			return gitrepo.Credentials{User: "x-access-token", Token: token}, err
		},
	})
	if err == nil {
		t.Cleanup(func() { require.NoError(t, speaker.Close()) })
		_, err = speaker.Fetch(t.Context())
	}
	require.ErrorContains(t, err, "authorization failed")
	check := plan.Check{Name: plan.CheckPlan, Key: "k", Conclusion: plan.Success, Title: "t", Summary: "s"}
	for _, who := range []struct {
		token github.TokenSource
		may   bool
	}{{tokens.Git, false}, {tokens.Report, true}} {
		f, err := github.New(github.Options{
			BaseURL: ofGitHub(c).APIURL, Owner: "lab", Repo: "estate", Login: "berth[bot]", Token: who.token, App: tokens.App,
			Log: slog.New(slog.DiscardHandler),
		})
		require.NoError(t, err)
		err = f.Report(t.Context(), tips.Main, check)
		require.Equal(t, who.may, err == nil, err)
		_, err = f.Deliveries(t.Context(), time.Now().Add(-time.Hour))
		require.NoError(t, err, "the log is the App's own to read")
	}
	require.Len(t, forge.Checks(tips.Main), 1)
	require.Empty(t, forge.Violations())

	// A new key makes new tokens. An invalid key is reported without quoting it.
	put(t, keyFile, pems[1])
	_, err = tokens.Report(t.Context())
	require.ErrorContains(t, err, "check the App's", "the forge does not know it yet")
	put(t, keyFile, pems[1][:200])
	_, err = tokens.Report(t.Context())
	require.ErrorContains(t, err, "forge.app.key")
	require.NotContains(t, err.Error(), strings.TrimSpace(pems[1][60:100]))
	_, err = ofGitHub(c).Tokens()
	require.ErrorContains(t, err, "forge.app.key", "at the start, too")
}

func TestTokensAreSentToTheirHostOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	asked := 0
	app := func(context.Context) (string, error) { asked++; return "of the App", nil }
	auth := func(repository, api string) gitrepo.Credentials {
		t.Helper()
		c := &Config{}
		require.NoError(t, readInto(t, filepath.Join(dir, "berth.yaml"),
			"repository: {"+repository+", directory: /d}\nforge: {kind: github, api_url: \""+api+
				"\", owner: lab, repository: estate, login: \"b[bot]\", webhook_secret: {env: S}, app: {id: 7, installation: 70, key: "+
				"{file: /k}}}\n", c))
		access, err := c.Forge.Access()
		require.ErrorContains(t, err, "forge.app.key: secret: open /k")
		access.Git.Read = app
		got, err := c.repositoryAuth(access.Git)(t.Context())
		require.NoError(t, err)
		return got
	}
	token, key := put(t, filepath.Join(dir, "token"), "its own\n"), put(t, filepath.Join(dir, "key"), "PEM\n")
	const github, own = "https://api.github.com/", "https://git.example/api/v3/"
	of := gitrepo.Credentials{User: "x-access-token", Token: "of the App", Source: "of the App with forge.app.key /k"}
	require.Equal(t, of, auth(`url: "https://github.com/lab/estate.git"`, github))
	require.Equal(t, of, auth(`url: "https://git.example/lab/estate.git"`, own))
	require.Equal(t, 2, asked)
	require.Equal(t, gitrepo.Credentials{}, auth(`url: "https://git.example/lab/estate.git"`, github),
		"the App's token is not for other hosts")
	require.Equal(t, gitrepo.Credentials{}, auth(`url: "http://git.example/lab/estate.git", allow_http: true`, own),
		"nor for the wire to read")
	require.Equal(t, gitrepo.Credentials{}, auth(`url: "https://git.example:444/lab/estate.git"`, own))
	require.Equal(t, gitrepo.Credentials{User: "u", Token: "its own", Source: "repository.token in " + token},
		auth(`url: "https://github.com/lab/estate.git", username: u, token: {file: `+token+`}`, github))
	require.Equal(t, gitrepo.Credentials{SSHKey: []byte("PEM\n"), Source: "repository.ssh_key in " + key},
		auth(`url: "ssh://git@github.com/lab/estate.git", known_hosts: /h, ssh_key: `+key, github))
	require.Equal(t, 2, asked, "a useless request was made")
}

// ofGitHub is the section forge of a configuration for GitHub.
func ofGitHub(c *Config) *github.Config { return c.Forge.(*github.Config) }

// readInto reads text as berth.yaml.
func readInto(t *testing.T, path, text string, into *Config) error {
	c, err := ReadConfig(put(t, path, text+"authority: {trust_main: true}\n"))
	if err == nil {
		*into = *c
	}
	return err
}

// TestWebhookSecretsAreReadAgain: a replaced secret counts without a restart.
func TestWebhookSecretsAreReadAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	now, next := put(t, filepath.Join(dir, "now"), "one\n"), filepath.Join(dir, "next")
	c := &Config{}
	require.NoError(t, readInto(t, filepath.Join(dir, "berth.yaml"),
		"repository: {url: \"https://g.example/e.git\", directory: /d}\nforge: {kind: github, owner: lab, repository: estate, token: "+
			"{env: T}, webhook_secret: {file: "+now+"}, webhook_secret_next: {file: "+next+"}}\n", c))
	got, err := c.webhookSecrets()
	require.ErrorContains(t, err, "forge.webhook_secret_next")
	require.Equal(t, [][]byte{[]byte("one")}, got, "a webhook signed with the first secret is accepted")
	put(t, next, "two\n")
	got, err = c.webhookSecrets()
	require.NoError(t, err)
	require.Equal(t, [][]byte{[]byte("one"), []byte("two")}, got)
	put(t, now, "two\n")
	got, err = c.webhookSecrets()
	require.NoError(t, err)
	require.Equal(t, [][]byte{[]byte("two"), []byte("two")}, got)
	put(t, now, "\n")
	got, err = c.webhookSecrets()
	require.ErrorContains(t, err, "forge.webhook_secret: ")
	require.Equal(t, [][]byte{[]byte("two")}, got)
}

// Clients with the same credential share one rate limiter.
func TestOneRateLimiterPerCredential(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var paths []string
	for i, who := range []string{"app: {id: 7, installation: 70, key: {file: /k}}", "app: {id: 7, installation: 70, key: {env: K}}",
		"app: {id: 7, installation: 71, key: {file: /k}}", "token: {env: A}", "token: {env: B}", "token: {env: A}"} {
		paths = append(paths, put(t, filepath.Join(dir, fmt.Sprintf("%d.yaml", i)), fmt.Sprintf(
			"estate: e%d\nrepository: {url: \"https://g.example/%d.git\", directory: /d%d}\nforge: {kind: github, owner: lab, "+
				"repository: r%d, login: \"b[bot]\", webhook_secret: {env: S}, %s}\nauthority: {trust_main: true}\n", i, i, i, i, who)))
	}
	estates, err := New(append(paths,
		put(t, filepath.Join(dir, "none.yaml"),
			"estate: none\nrepository: {url: \"https://g.example/n.git\", directory: /n}\nauthority: {trust_main: true}\n")),
		slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	var all []*Config
	for _, e := range estates.all {
		all = append(all, e.config.Load())
	}
	require.Same(t, all[0].limiter, all[1].limiter)
	require.Same(t, all[3].limiter, all[5].limiter)
	require.Nil(t, all[6].limiter)
	for _, i := range []int{2, 3, 4} {
		require.NotNil(t, all[i].limiter)
		require.NotSame(t, all[0].limiter, all[i].limiter)
	}
	require.NotSame(t, all[3].limiter, all[4].limiter)
}

// The rate limit survives a restart, and also a change of the estate to a credential
// that another estate uses.
func TestRateLimitStateSurvivesARestart(t *testing.T) {
	t.Parallel()
	a, b := newKept(t, "north", "", nil), newKept(t, "south", "", nil)
	said := &sink{}
	begin := func() *Daemon {
		s, err := New([]string{a.path, b.path}, slog.New(slog.NewTextHandler(said, nil)))
		require.NoError(t, err)
		return s
	}
	s := begin()
	r, err := newReloader(s)
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(said.String(), "starting at half"))
	north, south := s.all[0].config.Load().limiter, s.all[1].config.Load().limiter
	require.NotSame(t, north, south)

	replace(t, b.path, edited(t, b.path, map[string]any{"workers": 7}))
	r.reload()
	require.Same(t, south, s.all[1].file.accepted.Load().limiter)
	gh := map[string]any{"kind": "github", "owner": "example", "repository": "south", "login": "berth[bot]",
		"api_url": ofGitHub(s.all[0].config.Load()).APIURL, "token": ofGitHub(s.all[0].config.Load()).Token,
		"webhook_secret": ofGitHub(s.all[1].config.Load()).WebhookSecret}
	replace(t, b.path, edited(t, b.path, map[string]any{"forge": gh}))
	r.reload()
	require.Zero(t, testutil.ToFloat64(s.all[1].file.refused))
	require.Same(t, north, s.all[1].file.accepted.Load().limiter)

	north.Save(time.Now())
	files, err := filepath.Glob(filepath.Join(a.dir, "mirror", "pace-*.json"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	begin()
	require.Equal(t, 2, strings.Count(said.String(), "starting at half"), "the saved rate is used")
	require.NoError(t, os.WriteFile(files[0], []byte("{"), 0o600))
	begin()
	require.Contains(t, said.String(), "starting at the minimum rate")
}
