package daemon

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/webhooks/secret"
)

func TestConfiguration(t *testing.T) {
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "berth.yaml")
		require.NoError(t, os.WriteFile(path, []byte(text+"authority: {trust_main: true}\n"), 0o600))
		return path
	}
	t.Run("defaults are filled", func(t *testing.T) {
		c, err := ReadConfig(write("repository: {url: \"https://git.example/estate.git\", directory: /var/lib/berth/estate.git}\n"))
		require.NoError(t, err)
		require.Equal(t, "main", c.Repository.Branch)
		require.Equal(t, 5*time.Second, time.Duration(c.Interval))
		require.Equal(t, "127.0.0.1:8080", c.address())
		require.Nil(t, c.Forge)
	})
	t.Run("every wrong value is reported once, with its line", func(t *testing.T) {
		path := write(`repository:
  url: ftp://git.example/estate.git
  directory: /var/lib/berth/estate.git
interval: soon
`)
		_, err := ReadConfig(path)
		require.Error(t, err)
		for _, want := range []string{path + ":2:8: repository.url:", path + ":4:11: interval:"} {
			require.ErrorContains(t, err, want)
		}
	})
	t.Run("a misspelt field is reported with its line", func(t *testing.T) {
		path := write("repository: {url: \"https://git.example/estate.git\", directory: /var/lib/berth/estate.git}\nlissten: 127.0.0.1:1\n")
		_, err := ReadConfig(path)
		require.ErrorContains(t, err, path+":2:1: lissten: no such field: did you mean \"listen\"?")
	})
	t.Run("a URL with a password is refused and not repeated", func(t *testing.T) {
		for _, text := range []string{
			"repository: {url: \"https://u:hunter2@g.example/e.git\", directory: /d}\n",
			"repository: {url: \"https://u:hunter2%zz@g.example/e.git\", directory: /d}\n",
			"repository: {url: \"https://g.example/e.git\", status_url: \"https://hunter2@g.example/s.git\", directory: /d}\n",
			"repository: {url: \"https://g.example/e.git\", directory: /d}\ntenants: {chemistry: {url: " +
				"\"https://u:hunter2@g.example/c.git\"}}\n",
		} {
			_, err := ReadConfig(write(text))
			require.ErrorContains(t, err, "url: the URL holds a user or password")
			require.NotContains(t, err.Error(), "hunter2")
		}
	})
	t.Run("unusable values are reported with their line", func(t *testing.T) {
		const rest = "repository: {url: \"https://g.example/e.git\", directory: /d}\n"
		for text, want := range map[string]string{
			"listen: 127.0.0.1:99999\n": ":2:9: listen: the port is out of range",
			"interval: 99999999999h\n":  ":2:11: interval: got \"99999999999h\", want text: a whole number of at most 6 digits",
		} {
			_, err := ReadConfig(write(rest + text))
			require.ErrorContains(t, err, want)
		}
		for text, want := range map[string]string{"": ":1:1: the file is empty", "- a\n": ":1:1: a configuration is a mapping"} {
			path := filepath.Join(t.TempDir(), "berth.yaml")
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			_, err := ReadConfig(path)
			require.ErrorContains(t, err, want)
		}
	})
	t.Run("a missing field is named", func(t *testing.T) {
		_, err := ReadConfig(write("repository: {url: \"https://git.example/estate.git\", directory: /d}\nforge: {kind: github, owner: " +
			"lab, repository: estate, token: {env: TOKEN}}\n"))
		require.ErrorContains(t, err, "forge.webhook_secret: is missing: name its file or variable, as {file: /PATH} or {env: NAME}")
	})
	t.Run("conflicting fields are reported with the field to add", func(t *testing.T) {
		const app = "app: {id: 7, installation: 70, key: {file: /k}}"
		for _, c := range []struct{ repository, github, want string }{
			{"url: \"https://g.example/e.git\"", "token: {env: T}", ""},
			{"url: \"https://g.example/e.git\"", app + ", login: \"berth[bot]\"", ""},
			{"url: \"ssh://git@g.example/e.git\", ssh_key: /k, known_hosts: /h", "token: {env: T}", ""},
			{"url: \"http://g.example/e.git\", allow_http: true, status_url: \"https://g.example/s.git\", status_token: {env: T}, " +
				"accept: " + strings.Repeat("a", 40), "token: {env: T}", ""},
			{"url: \"https://g.example/e.git\"", "login: berth", ":2:1: forge.token: missing: add token"},
			{"url: \"https://g.example/e.git\"", "token: {env: T}, login: \"berth[bot]\", " + app, "forge.app: there is a token as well"},
			{"url: \"https://g.example/e.git\"", app, "forge.login: an App cannot ask who it is: add"},
			{"url: \"https://g.example/e.git\"", app + ", login: \"berth[bot]\", report: statuses",
				"forge.report: an App writes check runs"},
			{"url: \"https://g.example/e.git\"", "token: {env: T}, report: pigeons",
				":2:106: forge.report: got \"pigeons\", want one of \"checks\", \"statuses\""},
			{"url: \"https://g.example/e.git\"", "app: {id: 7, key: {file: /k}}, login: \"berth[bot]\"",
				"forge.app.installation: is missing"},
			{"url: \"ssh://git@g.example/e.git\", known_hosts: /h", "token: {env: T}",
				":1:1: repository.ssh_key: an ssh:// URL needs it: add"},
			{"url: \"ssh://git@g.example/e.git\", ssh_key: /k", "token: {env: T}", "repository.known_hosts: an ssh:// URL needs it: add"},
			{"url: \"https://g.example/e.git\", status_url: \"ssh://g.example/s.git\"", "token: {env: T}",
				"repository.ssh_key: an ssh:// URL needs it: add"},
			{"url: \"https://g.example/e.git\", ssh_key: /k", "token: {env: T}", "repository.ssh_key: it is for ssh:// URLs"},
			{"url: \"https://g.example/e.git\", status_token: {env: T}", "token: {env: T}",
				"repository.status_token: it is for status_url"},
			{"url: \"https://g.example/lab/estate/tree/main\"", "token: {env: T}",
				":1:19: repository.url: this is a page of the forge: write the URL that git clone takes"},
			{"url: \"https://g.example/lab/estate/-/tree/main\"", "token: {env: T}", "repository.url: this is a page of the forge"},
			{"url: \"https://g.example/tree/estate.git\"", "token: {env: T}", ""},
			{"url: \"https://g.example/e.git\", accept: main", "token: {env: T}",
				"repository.accept: got \"main\", want text: the 40 digits of a commit"},
		} {
			_, err := ReadConfig(write("repository: {" + c.repository +
				", directory: /d}\nforge: {kind: github, owner: lab, repository: estate, webhook_secret: {env: S}, " + c.github + "}\n"))
			if c.want == "" {
				require.NoError(t, err, c.repository+" "+c.github)
			} else {
				require.ErrorContains(t, err, c.want, c.repository+" "+c.github)
			}
		}
	})
	t.Run("conflicting authority settings are reported once", func(t *testing.T) {
		const rest = "repository: {url: \"https://git.example/estate.git\", directory: /d}\n"
		for text, want := range map[string]string{
			rest:                     ":1:1: authority: is missing: add authority: {administrators: [LOGIN]}",
			rest + "authority: {}\n": ":2:1: authority.administrators: no user",
			rest + "authority: {administrators: [anna], trust_main: true}\n": "authority.trust_main: everybody may change everything then",
			rest + "authority: {administrators: [an na]}\n":                  "authority.administrators",
		} {
			path := filepath.Join(t.TempDir(), "berth.yaml")
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			_, err := ReadConfig(path)
			require.ErrorContains(t, err, want, text)
		}
	})
	t.Run("a literal secret is reported with its line and not repeated", func(t *testing.T) {
		for _, wrong := range []string{"s3cret", "'s3cret: {'", "[s3cret]", "{file: s3cret}", "{env: s3-cret}", "{value: s3cret}",
			"{file: /s3cret, env: B}", "{s3cret: 1}", "31337", "{}", "null"} {
			for _, c := range []struct{ text, at, field string }{
				{"repository: {url: \"https://g.example/e.git\", directory: /d}\nforge:\n  kind: github\n  owner: lab\n  repository: " +
					"estate\n  token: {env: T}\n  webhook_secret: " + wrong + "\n", ":7:", "forge.webhook_secret"},
				{"repository: {url: \"https://g.example/e.git\", directory: /d}\nforge:\n  kind: github\n  owner: lab\n  repository: " +
					"estate\n  login: \"b[bot]\"\n  webhook_secret: {env: S}\n  app:\n    id: 7\n    installation: 70\n    key: " + wrong +
					"\n", ":11:", "forge.app.key"},
				{"repository:\n  url: \"https://g.example/e.git\"\n  directory: /d\n  token: " + wrong + "\n", ":4:", "repository.token"},
				{"repository: {url: \"https://g.example/e.git\", directory: /d}\napi:\n  tokens:\n  - login: ana\n    token: {env: A}\n  " +
					"- login: eve\n    token: " + wrong + "\n", ":7:", "api.tokens[1].token"},
				{"repository: {url: \"https://g.example/e.git\", directory: /d}\ntenants:\n  lab-1:\n    url: " +
					"\"https://g.example/t.git\"\n    token: " + wrong + "\n", ":5:", "tenants.lab-1.token"},
			} {
				path := write(c.text)
				_, err := ReadConfig(path)
				require.ErrorContains(t, err, path+c.at)
				require.ErrorContains(t, err, c.field+
					": a secret is named here, not written: write either {file: /ABSOLUTE/PATH} or {env: NAME}", wrong)
				require.NotContains(t, err.Error(), "s3cret")
				require.NotContains(t, err.Error(), "s3-cret")
				require.NotContains(t, err.Error(), "31337")
				require.NotContains(t, err.Error(), "\n", "once")
			}
		}
	})
	t.Run("a key twice is refused", func(t *testing.T) {
		_, err := ReadConfig(write("listen: a:1\nlisten: b:1\n"))
		require.ErrorContains(t, err, "listen")
	})
	t.Run("a secret is read from its file, without the line end", func(t *testing.T) {
		file := func(text string) string {
			path := filepath.Join(t.TempDir(), "secret")
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			return path
		}
		s := secret.Ref{File: file("s3cret\n")}
		v, err := s.Read()
		require.NoError(t, err)
		require.Equal(t, "s3cret", v)
		_, err = (&secret.Ref{File: file("\n")}).Read()
		require.ErrorContains(t, err, "empty")
		require.NotContains(t, err.Error(), "s3cret")
	})
}

// A local path, the cache and the memory runtime's directory are relative to the
// configuration file, not to the working directory.
func TestConfigurationOfTrial(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "berth.yaml")
	const trial = "repository: {url: ., directory: .berth/cache}\nauthority: {trust_local_commits: true}\nmemory_runtime: {directory: " +
		".berth/memory, backends: [slurm]}\n"
	require.NoError(t, os.WriteFile(path, []byte(trial), 0o600))
	c, err := ReadConfig(path)
	require.NoError(t, err)
	require.Equal(t, "file://"+dir, c.Repository.URL)
	require.Equal(t, filepath.Join(dir, ".berth/cache"), c.Repository.Directory)
	require.Equal(t, filepath.Join(dir, ".berth/memory"), c.MemoryRuntime.Directory)

	for _, c := range []struct{ was, is, want string }{
		{"url: .", "url: \"https://git.example/estate.git\"",
			":2:34: authority.trust_local_commits: it is for a repository in a local directory only: remove it, and name the " +
				"administrators"},
		{"url: .", "url: ., token: {env: T}", "repository.token: a local repository takes no credential: remove"},
		{"url: .", "url: estate", `repository.url: got "estate", want text: a URL that begins with https://, ssh:// or file://, or a local path that begins with / or .`},
		{".berth/cache", "~/cache", "~ is not expanded"},
		{".berth/cache", ".", ":1:33: repository.directory: it is the directory of the repository or of this file: Berth deletes and " +
			"writes there"},
		{".berth/cache", "./.berth/memory", "repository.directory: it is that of memory_runtime, too"},
		{"trust_local_commits: true", "trust_local_commits: true, administrators: [anna]",
			"every user who can commit can change everything then: remove"},
		{"trust_local_commits: true", "trust_local_commits: true, trust_main: true", "trust_main says the same: remove one"},
		{"[slurm]", "[bare_metal]", "memory_runtime.backends[0]: no runtime for bare_metal is built in, there is slurm"},
		{", backends: [slurm]", "", "memory_runtime.backends: is missing: add backends: [slurm]"},
		{"[slurm]}\n", "[slurm]}\nssh: {key: /k}\n", "memory_runtime.backends[0]: ssh runs slurm on hosts: remove"},
		{"memory_runtime: {directory: .berth/memory, backends: [slurm]}\n", "ssh: {key: /k, command_timeout: 500ms}\n",
			"ssh.command_timeout: it is out of range: choose 1s to 5m"},
		{"memory_runtime: {directory: .berth/memory, backends: [slurm]}\n", "ssh: {key: /k, command_timeout: 1m}\n",
			"ssh.ready_timeout: it is out of range: choose 1m to 10m"},
		{"[slurm]}\n", "[slurm]}\nforge: {kind: github, owner: lab, repository: e, webhook_secret: {env: S}, token: {env: T}}\n",
			"forge: a local repository has no pull requests: remove"},
	} {
		require.Contains(t, trial, c.was)
		require.NoError(t, os.WriteFile(path, []byte(strings.Replace(trial, c.was, c.is, 1)), 0o600))
		_, err := ReadConfig(path)
		require.ErrorContains(t, err, c.want, c.is)
	}
	_, err = ReadConfig(filepath.Join(dir, "none.yaml"))
	require.ErrorContains(t, err, "no such file; name the configuration with -c, or make an estate that has one: berth init DIR")
}

// All mistakes of a file come at once, in its order and in plain words.
func TestConfigurationListsAllMistakes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "berth.yaml")
	require.NoError(t, os.WriteFile(path, []byte(`estate: My Estate
repositry: {}
repository:
  url: git.example/estate.git
  branche: main
workers: 100
interval: soon
listen: 8080
authority: {}
tls: {cert: tls.crt}
forge: {kind: github, owner: lab, repository: estate, webhook_secret: {env: S}, token: {env: T}, report: checks}
`), 0o600))
	_, err := ReadConfig(path)
	require.Error(t, err)
	got := strings.ReplaceAll(err.Error(), path, "berth.yaml")
	require.Equal(t, `configuration: 12 mistakes:
berth.yaml:1:9: estate: got "My Estate", want text: lower-case letters, digits and inner dashes, at most 40 characters, such as my-estate
berth.yaml:2:1: repositry: no such field: "repository" is there already
berth.yaml:3:1: repository.directory: is missing: add the path of a directory for the cache
berth.yaml:4:8: repository.url: got "git.example/estate.git", want text: a URL that begins with https://, ssh:// or file://, or a local path that begins with / or .; git@HOST:PATH is written ssh://git@HOST/PATH
berth.yaml:5:3: repository.branche: no such field: did you mean "branch"?
berth.yaml:6:10: workers: got 100, want a whole number from 1 to 64
berth.yaml:7:11: interval: got "soon", want text: a whole number of at most 6 digits above 0 and a unit, such as 500ms, 5s, 10m or 1h
berth.yaml:8:9: listen: got 8080, want text: an address and a port, such as 127.0.0.1:8080 or :8080
berth.yaml:9:1: authority.administrators: no user could make the first change: add a login, or say trust_main: true to let whoever can push change everything
berth.yaml:10:1: tls.key: is missing, want text: an absolute path, such as /etc/berth/token
berth.yaml:10:13: tls.cert: got "tls.crt", want text: an absolute path, such as /etc/berth/token
berth.yaml:11:106: forge.report: GitHub lets only an App write check runs: remove it to report commit statuses with this token, or configure app instead of token; if the token is an App's, say whose with login: SLUG[bot]`, got)

	require.NoError(t, os.WriteFile(path, []byte("repository:\n\turl: x\n"), 0o600))
	_, err = ReadConfig(path)
	require.ErrorContains(t, err, path+":2:")
}

// A file that cannot be read is listed once, with the field that names it.
func TestCheckListsEachUnreadableFileOnce(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "berth.yaml")
	require.NoError(t, os.WriteFile(path, []byte(`estate: lab
repository: {url: "https://git.example/estate.git", directory: cache}
authority: {administrators: [olga]}
forge:
  kind: github
  owner: lab
  repository: estate
  login: berth-lab[bot]
  app: {id: 1, installation: 2, key: {file: /nowhere/app.pem}}
  webhook_secret: {file: /nowhere/hook}
tls: {cert: /nowhere/tls.crt, key: /nowhere/tls.key}
api: {tokens: [{login: anna, token: {file: /nowhere/anna}}]}
`), 0o600))
	err := Check(io.Discard, []string{path})
	require.Error(t, err)
	require.Equal(t, `configuration: berth.yaml:12:30: api.tokens[0].token: secret: open /nowhere/anna: no such file or directory
berth.yaml:9:33: forge.app.key: secret: open /nowhere/app.pem: no such file or directory
berth.yaml:10:3: forge.webhook_secret: secret: open /nowhere/hook: no such file or directory
berth.yaml:11:13: tls.cert: open /nowhere/tls.crt: no such file or directory
berth.yaml:11:36: tls.key: open /nowhere/tls.key: no such file or directory`, strings.ReplaceAll(err.Error(), path, "berth.yaml"))
}

// --check finds settings that the daemon would refuse later, and files that give others access.
func TestCheckFindsWhatNobodyMustDo(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	keygen := func(name, passphrase string) string {
		out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", filepath.Join(dir, name)).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return filepath.Join(dir, name)
	}
	key, locked, open := keygen("key", ""), keygen("locked", "a passphrase"), keygen("open", "")
	secret, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	app := write("app.pem", string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(secret)})))
	certificate := func(name string, of crypto.Signer) string {
		template := x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"berth.example"},
			NotAfter: time.Now().AddDate(1, 0, 0)}
		der, err := x509.CreateCertificate(rand.Reader, &template, &template, of.Public(), of)
		require.NoError(t, err)
		return write(name, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	}
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	ofCurve, err := x509.MarshalECPrivateKey(curve)
	require.NoError(t, err)
	// as openssl ecparam -genkey writes
	parameters := pem.EncodeToMemory(&pem.Block{Type: "EC PARAMETERS", Bytes: []byte{6, 8, 42, 134, 72, 206, 61, 3, 1, 7}})
	curveKey := write("ec.pem", string(parameters)+string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: ofCurve})))
	cert, ofElliptic := certificate("cert.pem", secret), certificate("ec-cert.pem", curve)
	line, err := os.ReadFile(key + ".pub")
	require.NoError(t, err)
	public := strings.Join(strings.Fields(string(line))[:2], " ")
	require.NoError(t, os.Chmod(open, 0o644))
	estate := filepath.Join(dir, "estate")
	out, err := exec.Command("git", "init", "-q", "-b", "main", estate).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.Mkdir(filepath.Join(estate, "platform"), 0o755))
	local := func(path, branch string) string {
		return "repository: {url: \"file://" + path + "\", directory: cache, branch: " + branch +
			"}\nauthority: {trust_local_commits: true}\nssh: {key: " + key + "}\n"
	}
	hook, short := write("hook", strings.Repeat("x", 32)), write("short", "x\n")
	token := write("token", strings.Repeat("t", 40))
	bare := "repository: {url: \"https://git.example/e.git\", directory: cache, token: {file: " + token +
		"}}\nauthority: {trust_main: true}\n"
	base := bare + "ssh: {key: " + key + "}\n"
	git := func(url string) string {
		return strings.Replace(base, "https://git.example/e.git", url, 1)
	}
	github := func(fields string) string {
		return strings.Replace(base, "trust_main: true", "administrators: [olga]", 1) +
			"forge: {kind: github, owner: lab, repository: e, webhook_secret: {file: " + hook + "}, " + fields + "}\n"
	}
	for _, c := range []struct{ config, want string }{
		{base, "valid"},
		{strings.Replace(base, "trust_main: true", "administrators: [olga]", 1),
			":2:13: warning: authority.administrators: no commit counts as one of olga: without the section forge"},
		{strings.Replace(base, "trust_main: true", "administrators: [olga], administrator_keys: [\""+public+"\"]", 1), "valid"},
		{strings.Replace(github("token: {file: "+token+"}, api_url: \"https://ghe.example/api/v3/\""), "administrators: [olga]",
			"trust_main: true", 1), "warning: authority.trust_main: makes Berth ignore who wrote and approved a change"},
		{base + "artifacts: {plain_http: [\"r.example:5000\"], secrets: {pull: {username: u, password: {file: " + hook +
			"}, hosts: [\"r.example:5000\"], tenants: []}}}\n",
			"warning: artifacts.plain_http[0]: r.example:5000 gets the secret pull without encryption"},
		{base + "artifacts: {addresses: [0.0.0.0/0]}\n", "warning: artifacts.addresses[0]: 0.0.0.0/0 allows every address"},
		{base + "artifacts: {addresses: [127.0.0.0/8]}\n", "valid"},
		{base + "artifacts: {directories: [/]}\n", "warning: artifacts.directories[0]: / holds the file of repository.token"},
		{bare + "ssh: {key: " + key + ", user: root}\n", "warning: ssh.user: the key gives a root shell on each node"},
		{strings.Replace(github("token: {file: "+token+"}, api_url: \"https://ghe.example/api/v3/\""), "[olga]",
			"[olga, Olga]", 1), ":2:36: warning: authority.administrators[1]: \"Olga\" is there twice"},
		{base + "flush_window: 10m\n",
			":4:15: warning: flush_window: 10m is unusually long: berth status and the pull request are this much behind; usual is 50ms " +
				"to 1m"},
		{base + "flush_window: 2h\n", ":4:15: flush_window: it is out of range: choose 1ms to 1h"},
		{base + "usage_interval: 500ms\n", "warning: usage_interval: 500ms is unusually short"},
		{base + "usage_interval: 900h\n", "usage_interval: it is out of range: choose 100ms to 24h"},
		{base + "nodes: {heartbeat: 2h}\n", "nodes.heartbeat: it is out of range: choose 100ms to 1h"},
		{base + "nodes: {heartbeat: 30s}\n", "nodes.not_ready_after: one lost answer would make a node not ready"},
		{base + "nodes: {lost_after: 45s}\n", "nodes.lost_after: choose more than nodes.not_ready_after"},
		{base + "artifacts: {interval: 9999h}\n", "artifacts.interval: it is out of range: choose 100ms to 168h"},
		{bare + "ssh: {key: " + key + ", command_timeout: 0s}\n",
			"ssh.command_timeout: got \"0s\", want text: a whole number of at most 6 digits above 0"},
		{base + "retention: 0d\n", "retention: got \"0d\", want text: 1d to 9999d"},
		{strings.Replace(base, "trust_main: true", "trust_main: false", 1),
			":2:25: authority.trust_main: is true or absent"},
		{strings.Replace(base, "directory: cache", "directory: /run/berth", 1),
			":1:59: warning: repository.directory: the system empties /run, at a reboot"},
		{strings.Replace(base, "directory: cache", "directory: /tmp/berth-of-nobody", 1),
			"warning: repository.directory: the system empties /tmp"},
		{strings.Replace(base, "directory: cache", "directory: /etc/berth", 1),
			"warning: repository.directory: /etc is not for program data"},
		{strings.Replace(base, "directory: cache", "directory: /sbin", 1),
			"warning: repository.directory: /sbin holds other files, and Berth deletes and writes there"},
		{strings.Replace(base, "directory: cache", "directory: "+token, 1), "warning: repository.directory: open " + token +
			": not a directory"},
		{base + "api: {oidc: {issuer: \"https://id.example\", audience: berth, login_claim: name}}\n",
			"warning: api.oidc.login_claim: \"name\" is not known to hold the login at the forge"},
		{base + "api: {oidc: {issuer: \"https://id.example\", audience: berth, login_claim: prefered_username}}\n",
			"warning: api.oidc.login_claim: \"prefered_username\": did you mean \"preferred_username\"?"},
		{base + "api: {oidc: {issuer: \"https://id.example\", audience: berth, login_claim: \"https://lab.example/github_login\"}}\n",
			"valid"},
		{github("token: {file: " + write("copy", strings.Repeat("x", 32)) + "}, api_url: \"https://ghe.example/api/v3/\""),
			"warning: forge.webhook_secret: has the same value as forge.token: a user who knows a credential at the forge can use it as " +
				"the webhook secret"},
		{strings.Replace(base, "directory: cache", "directory: cache, signing_key: "+key, 1),
			"warning: ssh.key: has the same value as repository.signing_key"},
		{github("token: {file: " + write("lines", "a\nb\n") + "}, api_url: \"https://ghe.example/api/v3/\""),
			"warning: forge.token: the secret has several lines"},
		{github("token: {file: "+token+"}, api_url: \"https://ghe.example/api/v3/\"") +
			"tenants: {a: {url: \"https://git.example/t.git\"}, b: {url: \"https://git.example/t\"}}\n",
			"warning: tenants.b.url: is the repository of tenant a, too"},
		{strings.Replace(github("token: {file: "+token+"}"), "repository: e,", "repository: e.git,", 1),
			"forge.repository: the forge names it without .git: write e"},
		{git("https://git.example"), "repository.url: the URL names no repository"},
		{git("https://git.example/a b.git"), "repository.url: the URL names no repository"},
		{git("https://git.example:99999/e.git"), "repository.url: the URL names no repository"},
		{git("https://github.com/OWNER/REPOSITORY.git"), "repository.url: the URL names no repository"},
		{git("https://github.com/lab/e/pulls"), "repository.url: this is a page of the forge"},
		{git("https://api.github.com/repos/lab/e"), "repository.url: this is a page of the forge"},
		{strings.Replace(base, "directory: cache", "directory: cache, branch: refs/heads/main", 1),
			"repository.branch: write the name of the branch alone: main"},
		{strings.Replace(base, "directory: cache", "directory: cache, branch: origin/main", 1),
			"warning: repository.branch: the branch of the repository itself is meant, not that of a clone: write main"},
		{base + "listen: 300.0.0.1:80\n", "listen: \"300.0.0.1\" is not an address"},
		{base + "listen: \"::1:8080\"\n", "listen: it is an address and a port without a scheme"},
		{base + "listen: 192.0.2.1:8080\n", "warning: listen: 192.0.2.1 is no address of this machine now"},
		{base + "listen: localhost:8080\n", "valid"},
		{strings.Replace(base, "{file: "+token+"}", "{file: ~/token}", 1),
			"repository.token: a secret is named here, not written: write either {file: /ABSOLUTE/PATH} or {env: NAME}; NAME has no $; " +
				"the path begins with /"},
		{strings.Replace(base, "{file: "+token+"}", "{file:"+token+"}", 1), "repository.token: a space is missing behind the colon"},
		{base + "tls: {cert: " + cert + ", key: " + app + "}\n", "valid"},
		{base + "tls: {cert: " + ofElliptic + ", key: " + curveKey + "}\n", "valid"},
		{base + "tls: {cert: " + cert + ", key: " + key + "}\n", "tls.key: the file is not the private key of a certificate"},
		{base + "tls: {cert: " + cert + ", key: " + curveKey + "}\n", "tls.key: the file is the key of another certificate"},
		{base + "tls: {cert: " + key + ".pub, key: " + app + "}\n", "tls.cert: tls: failed to find any PEM data in certificate input"},
		{strings.Replace(github("login: \"lab[bot]\", app: {id: 87654321, installation: 1234567, key: {file: "+app+"}}"),
			"git.example/e.git", "github.com/lab/e", 1),
			"warning: forge.app: at github.com an installation has a larger number than its App"},
		{base + "tenants:\n- physics:\n  url: \"https://git.example/p.git\"\n",
			"tenants[0].physics: has no value: write one; or indent the lines below, if they belong to it, and remove the dash"},
		{base + "listen: 127.0.0.1:0\n", "warning: listen: port 0 changes at each start"},
		{"apiVersion: berth/v1\nkind: Tenant\nmetadata: {name: physics}\n",
			":2:7: this is a document of an estate (kind Tenant), and -c names the configuration"},
		{strings.Replace(base, "authority:", "Authority:", 1), ":2:1: Authority: no such field: did you mean \"authority\"?"},
		{bare, "warning: there is neither ssh nor memory_runtime: Berth checks changes and deploys nothing"},
		{bare + "memory_runtime: {directory: memory, backends: [slurm]}\n", "valid"},
		{base + "artifacts: {directories: [" + filepath.Join(dir, "gone") + "]}\n", "warning: artifacts.directories[0]: stat "},
		{base + "artifacts: {directories: [" + hook + "]}\n", "warning: artifacts.directories[0]: " + hook + " is not a directory"},
		{strings.Replace(github("token: {file: "+token+"}"), "git.example/e.git", "github.com/lab/other.git", 1),
			"warning: forge.repository: the pull requests are those of lab/e, and repository.url is another repository"},
		{strings.Replace(github("token: {file: "+token+"}"), "git.example/e.git", "github.com/Lab/e", 1), "valid"},
		{strings.Replace(github("token: {file: "+token+"}, api_url: \"https://ghe.example\""), "git.example/e.git",
			"github.com/lab/e", 1), "warning: forge.api_url: is of ghe.example, and repository.url is at github.com"},
		{github("token: {file: " + token + "}, api_url: \"https://ghe.example\""),
			"warning: forge.api_url: the API of GitHub Enterprise Server is below /api/v3/"},
		{github("token: {file: " + token + "}, api_url: \"https://ghe.example/api/v3/\""), "valid"},
		{strings.Replace(github("token: {file: "+token+"}"), ", token: {file: "+token+"}}\nauth", "}\nauth", 1),
			"warning: repository.token: missing"},
		{github("token: {file: " + token + "}, webhook_secret_next: {file: " + hook + "}"),
			"warning: forge.webhook_secret_next: is the same as webhook_secret"},
		{github("token: {file: " + write("pat", "ghp_0123456789\n") + "}, report: checks, login: \"lab[bot]\""),
			"warning: forge.report: GitHub lets only an App write check runs, and the token is a user's"},
		{github("token: {file: " + write("fine", "github_pat_0123456789\n") + "}, login: \"lab[bot]\""),
			"warning: forge.login: the token is a user's, and lab[bot] is an App"},
		{strings.Replace(github("token: {file: "+write("app", "ghs_0123456789\n")+"}, report: checks, login: \"lab[bot]\""),
			"git.example/e.git", "github.com/lab/e", 1), "valid"},
		{strings.Replace(base, ", token: {file: "+token+"}}\nauth", "}\nauth", 1), "warning: repository.token: missing: Berth pushes"},
		{strings.Replace(github("token: {file: "+token+"}"), "git.example/e.git", "ghe.example/lab/e", 1),
			"warning: forge.api_url: missing: pull requests would be looked for at github.com, and repository.url is at ghe.example"},
		{local(filepath.Join(estate, "nowhere"), "main"), ":1:19: repository.url: directory "},
		{strings.Replace(local(estate, "main"), "directory: cache", "directory: "+estate+"/platform/cache", 1),
			"warning: repository.directory: Berth would write its files among the documents in platform/"},
		{bare + "ssh: {key: " + key + ", known_hosts: " + write("junk", "hello\n") + "}\n",
			"warning: ssh.known_hosts: the file pins no host"},
		{base + "api: {oidc: {issuer: \"https://id.example\", audience: berth, login_claim: email}}\n",
			"warning: api.oidc.login_claim: an email is not a login"},
		{strings.Replace(base, "repository: {", "repo: {", 1), "repository: is missing"},
		{base + "api: {oidc: {issuer: \"https://id.example/.well-known/openid-configuration\", audience: berth}}\n",
			"warning: api.oidc.issuer: is the address of its configuration"},
		{base + "tenants: {chemistry: {url: \"https://git.example/e.git\"}}\n",
			"warning: tenants.chemistry.url: is the repository of the estate"},
		{strings.Replace(base, "directory: cache", "directory: cache, status_url: \"https://git.example/e.git\"", 1),
			"warning: repository.status_url: is that of repository.url"},
		{strings.Replace(base, "directory: cache", "directory: cache, branch: berth/in-force", 1),
			"repository.branch: the branches berth/* are Berth's own"},
		{bare + "ssh: {key: " + open + "}\n",
			"warning: ssh.key: other users of this machine can read the key (mode 0644): chmod 0400 " + open},
		{bare + "ssh: {key: " + key + ", known_hosts: " + write("known_hosts", "\n") + "}\n",
			"warning: ssh.known_hosts: the file is empty, so no host is trusted"},
		{local(estate, "main"), "warning: repository.branch: revision"},
		{local(estate+"/platform", "main"), "warning: repository.url: " + estate + "/platform is a directory within a repository"},
		{git("http://127.0.0.1/e.git"), "valid"},
		{git("http://git.example/e.git"), "repository.url: plain HTTP to another machine shows the token"},
		{base + "tenants: {physics: {url: \"http://git.example/p.git\"}}\n", "tenants.physics.url: plain HTTP"},
		{bare + "ssh: {key: " + key + ".pub}\n", "ssh.key: the file holds a public key: name the private one"},
		{bare + "ssh: {key: " + locked + "}\n", "ssh.key: the private key has a passphrase"},
		{bare + "ssh: {key: " + hook + "}\n", "ssh.key: the file holds no private key"},
		{base + "listen: 0.0.0.0:8080\n", "warning: listen: 0.0.0.0:8080 takes requests of other machines without TLS"},
		{base + "listen: :8080\n", "warning: listen: :8080"},
		{base + "listen: \"[::1]:8080\"\n", "valid"},
		{base + "poll: 1ms\n", "poll: it is out of range: choose 100ms to 24h"},
		{base + "interval: 48h\n", "interval: it is out of range"},
		{github("token: {file: " + write("pat", "ghp_0123456789\n") + "}, report: checks, login: \"lab[bot]\""),
			"warning: forge.report: GitHub lets only an App write check runs, and the token is a user's"},
		{github("token: {file: " + write("fine", "github_pat_0123456789\n") + "}, login: \"lab[bot]\""),
			"warning: forge.login: the token is a user's, and lab[bot] is an App"},
		{strings.Replace(github("token: {file: "+write("app", "ghs_0123456789\n")+"}, report: checks, login: \"lab[bot]\""),
			"git.example/e.git", "github.com/lab/e", 1), "valid"},
		{base + "api: {oidc: {issuer: \"http://id.example\", audience: berth}}\n", "api.oidc.issuer: plain HTTP"},
		{github("token: {file: " + token + "}, api_url: \"http://github.example/api/v3/\""), "forge.api_url: plain HTTP"},
		{github("app: {id: 1, installation: 2, key: {file: " + hook + "}}, login: berth-lab"),
			"forge.login: an App acts under its slug and [bot]: write berth-lab[bot]"},
		{strings.Replace(github("token: {file: "+token+"}"), "webhook_secret: {file: "+hook,
			"webhook_secret: {file: "+short, 1), "forge.webhook_secret: the secret is shorter than 16 characters"},
	} {
		var out strings.Builder
		err := Check(&out, []string{write("berth.yaml", c.config)})
		if err != nil {
			out.WriteString(err.Error())
		}
		require.Contains(t, out.String(), c.want, c.config)
		isWarning := strings.Contains(c.want, "warning: ")
		require.Equal(t, c.want != "valid" && !isWarning, err != nil, c.config)
		require.Equal(t, isWarning, strings.Contains(out.String(), "warning"), c.config+out.String())
	}
}

// Each pattern of berth.yaml is explained in words.
func TestConfigurationPatternsAreExplained(t *testing.T) {
	text := configCUE
	for _, k := range forges() {
		text += k.CUE
	}
	require.NotContains(t, text, `=~"`, "a pattern without a name cannot be explained")
	patterns := regexp.MustCompile(`(?m)^(_[a-zA-Z]+): +"`).FindAllStringSubmatch(text, -1)
	require.Greater(t, len(patterns), 10)
	for _, p := range patterns {
		require.Contains(t, text, "\t("+p[1]+"):", "no words for the pattern")
	}
}

// A token reports commit statuses: GitHub lets only an App write check runs.
func TestTokenImpliesStatuses(t *testing.T) {
	for fields, want := range map[string]string{
		"token: {env: T}":                                                    "statuses",
		"token: {env: T}, report: statuses":                                  "statuses",
		"token: {env: T}, report: checks, login: \"b[bot]\"":                 "checks",
		"app: {id: 7, installation: 70, key: {file: /k}}, login: \"b[bot]\"": "",
	} {
		path := filepath.Join(t.TempDir(), "berth.yaml")
		require.NoError(t, os.WriteFile(path,
			[]byte("repository: {url: \"https://g.example/e.git\", directory: /d}\nauthority: {administrators: [anna]}\nforge: {kind: "+
				"github, owner: lab, repository: estate, webhook_secret: {env: S}, "+fields+"}\n"), 0o600))
		c, err := ReadConfig(path)
		require.NoError(t, err, fields)
		require.EqualValues(t, want, ofGitHub(c).Report, fields)
	}
}

func TestInstallPageShowsAValidConfiguration(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("../../..", "deploy/install.md"))
	require.NoError(t, err)
	example := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(text)
	require.NotNil(t, example)
	path := filepath.Join(t.TempDir(), "berth.yaml")
	require.NoError(t, os.WriteFile(path, regexp.MustCompile(`(?m)^   `).ReplaceAll(example[1], nil), 0o600))
	_, err = ReadConfig(path)
	require.NoError(t, err)
}

// The defaults that config.cue documents are those in use.
func TestDocumentedDefaultsAreInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "berth.yaml")
	require.NoError(t, os.WriteFile(path, []byte(`repository: {url: "https://g.example/e.git", directory: /d}
authority: {administrators: [anna]}
forge: {kind: github, owner: lab, repository: estate, webhook_secret: {env: S}, token: {env: T}}
ssh: {key: /k}
`), 0o600))
	c, err := ReadConfig(path)
	require.NoError(t, err)
	page, err := Reference()
	require.NoError(t, err)
	for field, value := range map[string]any{
		"estate": c.Estate, "repository.branch": c.Repository.Branch, "forge.api_url": ofGitHub(c).APIURL, "listen": c.address(),
		"ssh.user":            c.SSH.User,
		"ssh.command_timeout": c.SSH.CommandTimeout, "ssh.ready_timeout": c.SSH.ReadyTimeout,
		"interval": c.Interval, "poll": c.Poll, "flush_window": c.FlushWindow, "retention": c.Retention, "workers": c.Workers,
		"max_attempts": c.MaxAttempts, "usage_interval": c.Usage,
		"nodes.heartbeat": c.Nodes.Heartbeat, "nodes.not_ready_after": c.Nodes.NotReady, "nodes.lost_after": c.Nodes.Lost,
	} {
		m := regexp.MustCompile("(?m)^\\| `" + regexp.QuoteMeta(field) + "` .* \\(default `(.*)`\\) \\|$").FindStringSubmatch(string(page))
		require.NotNil(t, m, field)
		if d, ok := value.(duration); ok {
			var documented duration
			require.NoError(t, documented.UnmarshalJSON([]byte(m[1])))
			require.Equal(t, documented, d, field)
			continue
		}
		require.Equal(t, strings.Trim(m[1], `"`), fmt.Sprint(value), field)
	}
}
