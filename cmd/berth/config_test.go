package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestConfiguration(t *testing.T) {
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "berth.yaml")
		require.NoError(t, os.WriteFile(path, []byte(text+"authority: {trust_main: true}\n"), 0o600))
		return path
	}
	t.Run("defaults are filled", func(t *testing.T) {
		c, err := readConfig(write("repository: {url: \"https://git.example/estate.git\", directory: /var/lib/berth/estate.git}\n"))
		require.NoError(t, err)
		require.Equal(t, "main", c.Repository.Branch)
		require.Equal(t, 5*time.Second, time.Duration(c.Interval))
		require.Equal(t, "127.0.0.1:8080", c.address())
		require.Nil(t, c.GitHub)
	})
	t.Run("every wrong value is told, once, at its place", func(t *testing.T) {
		path := write(`repository:
  url: ftp://git.example/estate.git
  directory: /var/lib/berth/estate.git
interval: soon
`)
		_, err := readConfig(path)
		require.Error(t, err)
		for _, want := range []string{path + ":2:8: repository.url:", path + ":4:11: interval:"} {
			require.ErrorContains(t, err, want)
		}
	})
	t.Run("a misspelt field is told at its place", func(t *testing.T) {
		path := write("repository: {url: \"https://git.example/estate.git\", directory: /var/lib/berth/estate.git}\nlissten: 127.0.0.1:1\n")
		_, err := readConfig(path)
		require.ErrorContains(t, err, path+":2:1: lissten: field not allowed")
	})
	t.Run("a missing field is named", func(t *testing.T) {
		_, err := readConfig(write("repository: {url: \"https://git.example/estate.git\", directory: /d}\ngithub: {owner: lab, repository: estate, token: {env: TOKEN}}\n"))
		require.ErrorContains(t, err, "github.webhook_secret: field is required")
	})
	t.Run("fields that do not go together are told with what to add", func(t *testing.T) {
		const app = "app: {id: 7, installation: 70, key: {file: /k}}"
		for _, c := range []struct{ repository, github, want string }{
			{"url: \"https://g.example/e.git\"", "token: {env: T}", ""},
			{"url: \"https://g.example/e.git\"", app + ", login: \"berth[bot]\"", ""},
			{"url: \"ssh://git@g.example/e.git\", ssh_key: /k, known_hosts: /h", "token: {env: T}", ""},
			{"url: \"http://g.example/e.git\", allow_http: true, status_url: \"https://g.example/s.git\", status_token: {env: T}, accept: " + strings.Repeat("a", 40), "token: {env: T}", ""},
			{"url: \"https://g.example/e.git\"", "login: berth", ":2:1: github.token: there is none: add token"},
			{"url: \"https://g.example/e.git\"", "token: {env: T}, login: \"berth[bot]\", " + app, "github.app: there is a token as well"},
			{"url: \"https://g.example/e.git\"", app, "github.login: an App cannot ask who it is: add"},
			{"url: \"https://g.example/e.git\"", app + ", login: \"berth[bot]\", report: statuses", "github.report: an App writes check runs"},
			{"url: \"https://g.example/e.git\"", "token: {env: T}, report: pigeons", ":2:93: github.report: invalid value"},
			{"url: \"https://g.example/e.git\"", "app: {id: 7, key: {file: /k}}, login: \"berth[bot]\"", "github.app.installation: field is required"},
			{"url: \"ssh://git@g.example/e.git\", known_hosts: /h", "token: {env: T}", ":1:1: repository.ssh_key: an ssh:// URL needs it: add"},
			{"url: \"ssh://git@g.example/e.git\", ssh_key: /k", "token: {env: T}", "repository.known_hosts: an ssh:// URL needs it: add"},
			{"url: \"https://g.example/e.git\", status_url: \"ssh://g.example/s.git\"", "token: {env: T}", "repository.ssh_key: an ssh:// URL needs it: add"},
			{"url: \"https://g.example/e.git\", ssh_key: /k", "token: {env: T}", "repository.ssh_key: it is for ssh:// URLs"},
			{"url: \"https://g.example/e.git\", status_token: {env: T}", "token: {env: T}", "repository.status_token: it is for status_url"},
			{"url: \"https://g.example/e.git\", accept: main", "token: {env: T}", "repository.accept: invalid value"},
		} {
			_, err := readConfig(write("repository: {" + c.repository + ", directory: /d}\ngithub: {owner: lab, repository: estate, webhook_secret: {env: S}, " + c.github + "}\n"))
			if c.want == "" {
				require.NoError(t, err, c.repository+" "+c.github)
			} else {
				require.ErrorContains(t, err, c.want, c.repository+" "+c.github)
			}
		}
	})
	t.Run("who may change what is said, once", func(t *testing.T) {
		const rest = "repository: {url: \"https://git.example/estate.git\", directory: /d}\n"
		for text, want := range map[string]string{
			rest:                     "authority: field is required",
			rest + "authority: {}\n": ":2:1: authority.administrators: there is none",
			rest + "authority: {administrators: [anna], trust_main: true}\n": "authority.trust_main: everybody may change everything then",
			rest + "authority: {administrators: [an na]}\n":                  "authority.administrators",
		} {
			path := filepath.Join(t.TempDir(), "berth.yaml")
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			_, err := readConfig(path)
			require.ErrorContains(t, err, want, text)
		}
	})
	t.Run("a secret that stands there is told at its place, and not repeated", func(t *testing.T) {
		for _, wrong := range []string{"s3cret", "'s3cret: {'", "[s3cret]", "{file: s3cret}", "{env: s3-cret}", "{value: s3cret}", "{file: /s3cret, env: B}", "{s3cret: 1}", "31337", "{}", "null"} {
			for _, c := range []struct{ text, at, field string }{
				{"repository: {url: \"https://g.example/e.git\", directory: /d}\ngithub:\n  owner: lab\n  repository: estate\n  token: {env: T}\n  webhook_secret: " + wrong + "\n", ":6:3: ", "github.webhook_secret"},
				{"repository: {url: \"https://g.example/e.git\", directory: /d}\ngithub:\n  owner: lab\n  repository: estate\n  login: \"b[bot]\"\n  webhook_secret: {env: S}\n  app:\n    id: 7\n    installation: 70\n    key: " + wrong + "\n", ":10:5: ", "github.app.key"},
				{"repository:\n  url: \"https://g.example/e.git\"\n  directory: /d\n  token: " + wrong + "\n", ":4:3: ", "repository.token"},
				{"repository: {url: \"https://g.example/e.git\", directory: /d}\napi:\n  tokens:\n  - login: ana\n    token: {env: A}\n  - login: eve\n    token: " + wrong + "\n", ":7:5: ", "api.tokens.1.token"},
				{"repository: {url: \"https://g.example/e.git\", directory: /d}\ntenants:\n  lab-1:\n    url: \"https://g.example/t.git\"\n    token: " + wrong + "\n", ":5:5: ", "tenants.\"lab-1\".token"},
			} {
				path := write(c.text)
				_, err := readConfig(path)
				require.ErrorContains(t, err, path+c.at+c.field+": a secret is named here, not written: say {file: /PATH} or {env: NAME}", wrong)
				require.NotContains(t, err.Error(), "s3cret")
				require.NotContains(t, err.Error(), "s3-cret")
				require.NotContains(t, err.Error(), "31337")
				require.NotContains(t, err.Error(), "\n", "once")
			}
		}
	})
	t.Run("a key twice is refused", func(t *testing.T) {
		_, err := readConfig(write("listen: a:1\nlisten: b:1\n"))
		require.ErrorContains(t, err, "listen")
	})
	t.Run("a secret is read from its file, without the line end", func(t *testing.T) {
		file := func(text string) string {
			path := filepath.Join(t.TempDir(), "secret")
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			return path
		}
		s := secret{File: file("s3cret\n")}
		v, err := s.read()
		require.NoError(t, err)
		require.Equal(t, "s3cret", v)
		_, err = (&secret{File: file("\n")}).read()
		require.ErrorContains(t, err, "empty")
		require.NotContains(t, err.Error(), "s3cret")
	})
}
