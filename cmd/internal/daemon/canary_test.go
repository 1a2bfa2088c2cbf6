package daemon

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"berth/cmd/internal/labtest"
	"berth/examples/await"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/schema"
	"berth/webhooks/api"
)

// The secrets that Berth is given here, each unlike anything else.
const (
	canaryGit     = "canary-9f1c-git-token"
	canaryForge   = "canary-72ab-forge-token"
	canaryWebhook = "canary-c05d-webhook-secret"
	canaryKey     = "canary-e4b8-key-material"
	canaryAPI     = "canary-5ad3-api-token-of-a-person"
	canaryPull    = "canary-b196-registry-password"
)

// sink is where text goes from several goroutines.
type sink struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *sink) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// echoServer is a proxy in front of a server. It forwards requests under another
// token, or answers with an error that repeats the secret of the request, as some
// real servers and proxies do.
type echoServer struct {
	to     *httputil.ReverseProxy
	secret string // that must be shown
	inside string // that is shown to the server behind; "": none

	mu    sync.Mutex
	mood  string
	told  int // answers given in this mood
	shown int // requests that carried the secret
}

func newEchoServer(t *testing.T, server, secret, inside string) (*echoServer, *httptest.Server) {
	t.Helper()
	to, err := url.Parse(server)
	require.NoError(t, err)
	k := &echoServer{secret: secret, inside: inside, to: &httputil.ReverseProxy{
		Rewrite:  func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: to.Scheme, Host: to.Host}) },
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}}
	front := httptest.NewServer(k)
	t.Cleanup(front.Close)
	return k, front
}

func (k *echoServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	auth := r.Header.Get("Authorization")
	said := auth
	if basic, ok := strings.CutPrefix(auth, "Basic "); ok {
		plain, _ := base64.StdEncoding.DecodeString(basic)
		said += " " + string(plain)
	}
	k.mu.Lock()
	mood := k.mood
	if strings.Contains(said, k.secret) {
		k.shown++
	}
	if mood != "" {
		k.told++
	}
	k.mu.Unlock()
	if mood != "" {
		w.Header().Set("X-Echo", said)
	}
	switch mood {
	case "": // no fault
		r.Header.Del("Authorization")
		if k.inside != "" {
			r.Header.Set("Authorization", "Bearer "+k.inside)
		}
		k.to.ServeHTTP(w, r)
	case "redirect":
		http.Redirect(w, r, "http://127.0.0.1:1/"+url.PathEscape(said), http.StatusFound)
	case "git error": // an error inside the Git protocol
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		for _, line := range []string{"# service=git-upload-pack\n", "", "ERR no access with " + said} {
			if line == "" {
				io.WriteString(w, "0000")
				continue
			}
			fmt.Fprintf(w, "%04x%s", len(line)+4, line)
		}
	default:
		var code int
		fmt.Sscan(mood, &code)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("WWW-Authenticate", `Basic realm="`+k.secret+`"`)
		w.WriteHeader(code)
		text, _ := json.Marshal(said)
		fmt.Fprintf(w, `{"message":%s,"errors":[{"message":%s,"code":%s}],"documentation_url":"http://x/?token=%s"}`, text, text, text,
			k.secret)
	}
}

// become changes the mood.
func (k *echoServer) become(mood string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mood, k.told = mood, 0
}

func (k *echoServer) counts() (told, shown int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.told, k.shown
}

// No part of a secret reaches any output of Berth, even if a server's error message
// repeats the secret of the request (reliability.md I13).
func TestNoSecretReachesAnySink(t *testing.T) {
	t.Parallel()
	listen, err := labtest.FreePort()
	require.NoError(t, err)
	s := newKept(t, "estate", listen, nil)
	git, gitFront := newEchoServer(t, s.git.URL, canaryGit, "")
	forge, forgeFront := newEchoServer(t, s.forge.APIURL(), canaryForge, labtest.Token)
	gitURL, err := url.Parse(s.git.URL)
	require.NoError(t, err)
	apiURL, err := url.Parse(s.forge.APIURL())
	require.NoError(t, err)

	file := func(name, text string) map[string]string {
		path := filepath.Join(s.dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return map[string]string{"file": path}
	}
	repository := map[string]any{
		"url": gitFront.URL + gitURL.Path, "token": file("git", canaryGit), "username": "x-access-token",
		"directory": filepath.Join(s.dir, "mirror"), "allow_http": true,
	}
	hub := map[string]any{
		"kind": "github", "api_url": forgeFront.URL + apiURL.Path, "owner": "example", "repository": "estate",
		"login": labtest.App + "[bot]",
		"token": file("forge", canaryForge), "webhook_secret": file("hook", canaryWebhook),
	}
	// A registry whose token endpoint repeats the request and authenticates nobody.
	pulled := &echoServer{secret: canaryPull, mood: "401"}
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/v2/") {
			pulled.ServeHTTP(w, r)
			return
		}
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="x"`, r.Host))
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(registry.Close)
	registryHost := strings.TrimPrefix(registry.URL, "http://")
	public, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	line, err := ssh.NewPublicKey(public)
	require.NoError(t, err)
	jwt, err := api.Mint(schema.Key{Kind: schema.KindServiceAccount, Tenant: "biology", Project: "genomes", Name: "ci"}, "current", private,
		"estate", 15*time.Minute, time.Now())
	require.NoError(t, err)
	canaryJWT := jwt[strings.LastIndex(jwt, ".")+1:] // only the signature is secret

	base := map[string]any{
		"estate": "estate", "listen": listen,
		"memory_runtime": map[string]any{"directory": filepath.Join(s.dir, "world"), "backends": []string{"slurm"}},
	}
	path := s.configure("berth", base, map[string]any{
		"repository": repository, "forge": hub, "authority": map[string]any{"trust_main": true},
		"interval": "200ms", "poll": "200ms", "flush_window": "50ms",
		"api": map[string]any{"tokens": []any{map[string]any{"login": labtest.Administrator, "token": file("api", canaryAPI)}}},
		"artifacts": map[string]any{
			"plain_http": []string{registryHost}, "addresses": []string{"127.0.0.1/32"}, "interval": "1m",
			"secrets": map[string]any{"pull": map[string]any{"username": "berth", "password": file("pull", canaryPull),
				"hosts": []string{registryHost}}},
		},
	})

	said := &sink{} // the log of Berth
	log := slog.New(slog.NewJSONHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug}))
	d, err := New([]string{path}, log)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Serve(ctx, nil) }()
	stop := sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	defer stop()

	until := func(what string, ok func() bool) {
		t.Helper()
		await.True(t, what, ok, func() any { return lastLines(said) })
	}
	phase := func(want plan.Phase) func() bool {
		return func() bool {
			tree, err := s.status()
			return err == nil && tree.Units.Get(labtest.Assembly) != nil && tree.Units.Get(labtest.Assembly).Phase == want
		}
	}
	decided := func() bool {
		tree, err := s.status()
		return err == nil && tree.Revision.Commit == s.git.Tip("main")
	}
	instance := pathOf(t, labtest.Assembly)
	const genomes, document = "tenants/biology/projects/genomes/", "apiVersion: berth/v1\nkind: "
	s.git.MustCommit(t, "main", gittest.Commit{Message: "a cluster", Files: map[string]string{
		instance: labtest.AssemblyYAML(),
		"platform/artifact-sources/pull.yaml": document + "ArtifactSource\nmetadata: {name: pull}\nspec: {type: oci, host: \"" +
			registryHost + "\", credential: pull, repositories: [lab]}\n",
		genomes + "artifacts/solver.yaml": document +
			"Artifact\nmetadata: {name: solver}\nspec: {app: slurm, source: pull, reference: \"lab/solver:1\", media_type: " +
			"application/x-tar, digest: \"sha256:" + strings.Repeat("0", 64) + "\", status: registered}\n",
		genomes + "service-accounts/ci.yaml": document +
			"ServiceAccount\nmetadata: {name: ci}\nspec:\n  display_name: x\n  public_keys: [{id: current, key: \"" +
			strings.TrimSpace(string(ssh.MarshalAuthorizedKey(line))) +
			"\"}]\n  scopes: [apps.instance.read]\n  allowed_endpoints: [\"GET /api/v1/projects/{project_id}/app-instances\"]\n",
		genomes + "roles.yaml": labtest.Files()[genomes+"roles.yaml"] + "    - service_account: ci\n      role: service_account\n",
	}})
	until("the instance runs", phase(plan.PhaseRunning))
	until("the registry was asked", func() bool { _, shown := pulled.counts(); return shown > 0 })

	// The read API, with tokens that are right, and where they do not belong.
	ask := func(path, token string, headers ...string) (status int) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+listen+path, nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		fmt.Fprintf(said, "%v\n%s\n", answer.Header, body)
		return answer.StatusCode
	}
	const instances = "/api/v1/projects/biology.genomes/app-instances"
	require.Equal(t, http.StatusOK, ask(instances, jwt))
	require.Equal(t, http.StatusOK, ask("/api/v1/admin/projects/biology.genomes/app-instances", canaryAPI, "X-Break-Glass", "a test"))
	for _, token := range []string{canaryAPI, jwt} {
		for _, path := range []string{"/api/v1/apps/catalog", "/api/v1/nope/" + token[:12], instances + "?token=" + token[:12],
			"/estates/nope/api/v1/apps/catalog"} {
			ask(path, token)
		}
		require.Equal(t, http.StatusUnauthorized, ask(instances, token+"x"))
	}

	// A pull request, and its comment.
	s.git.MustCommit(t, "change", gittest.Commit{Message: "gone", Parent: s.git.Tip("main"), Remove: []string{instance}})
	require.NoError(t, s.forge.Sync())
	_, err = s.forge.OpenPull("change", "gone", "anna-lattice")
	require.NoError(t, err)
	until("the pull request has its comment", func() bool {
		for _, r := range s.forge.Requests() {
			if strings.Contains(r.Op, "comments") && r.Write() {
				return true
			}
		}
		return false
	})

	// Servers that repeat the request, while work is pending.
	for i, mood := range []string{"401", "403", "422", "500", "redirect", "git error"} {
		for _, k := range []*echoServer{git, forge} {
			k.become(mood)
			s.git.MustCommit(t, "main", gittest.Commit{Message: "meanwhile",
				Files: map[string]string{"README.md": fmt.Sprint(i, k.secret[:6], mood)}})
			s.git.MustCommit(t, "change", gittest.Commit{Message: "again", Files: map[string]string{"README.md": mood},
				Remove: []string{instance}})
			require.NoError(t, s.forge.Sync())
			deliver(t, listen, canaryWebhook)
			deliver(t, listen, "another")
			if k == git || mood != "git error" {
				until(mood+" was answered", func() bool { told, _ := k.counts(); return told >= 1 })
			}
			k.become("")
		}
	}
	until("all of it is decided in the end", decided)
	for _, k := range []*echoServer{git, forge} {
		_, shown := k.counts()
		require.Positive(t, shown, "%s was never used: the test proves nothing", k.secret)
	}

	// Output on its port.
	for _, at := range []string{"/metrics", "/health", "/readyz", "/nowhere", "/webhooks/github"} {
		r, err := http.Get("http://" + listen + at)
		require.NoError(t, err)
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		require.NoError(t, r.Body.Close())
		fmt.Fprintf(said, "%v\n%s\n", r.Header, body)
	}
	stop()

	// Errors about unusable secrets.
	for name, more := range map[string]map[string]any{
		"an invalid App key": {"forge": map[string]any{"kind": "github",
			"api_url": hub["api_url"], "owner": "example", "repository": "estate", "login": "berth[bot]",
			"webhook_secret": hub["webhook_secret"],
			"app": map[string]any{"id": 7, "installation": 70,
				"key": file("app", "-----BEGIN RSA PRIVATE KEY-----\n"+canaryKey+"\n-----END RSA PRIVATE KEY-----\n")},
		}},
		"an invalid SSH key": {"ssh": map[string]any{
			"user": "berth", "key": file("ssh",
				"-----BEGIN OPENSSH PRIVATE KEY-----\n"+canaryKey+"\n-----END OPENSSH PRIVATE KEY-----\n")["file"],
			"known_hosts": file("known", "@cert-authority "+canaryKey)["file"],
		}},
		"a secret written where its file's name belongs": {"repository": map[string]any{
			"url": repository["url"], "directory": repository["directory"], "allow_http": true, "token": canaryKey,
		}},
	} {
		config := map[string]any{"repository": repository, "forge": hub, "authority": map[string]any{"trust_main": true}}
		for k, v := range more {
			config[k] = v
		}
		if more["ssh"] != nil {
			config["memory_runtime"] = nil // both would run the same backend
		}
		c, err := ReadConfig(s.configure("bad", base, config))
		var d *controller
		if err == nil {
			d, err = newController(t.Context(), c, log, hooks{})
		}
		if more["ssh"] != nil { // which is read when a host is reached for
			require.NoError(t, err)
			_, err = d.hosts.Host(plan.Member{Node: "gpu-1", Address: "127.0.0.1", SSHPort: 1}).Do(t.Context(), runtimes.Stamp{Epoch: 1})
			d.close()
		}
		require.Error(t, err, name)
		fmt.Fprintln(said, err)
	}

	// Output of the commands that read the repository.
	printed := &sink{}
	require.NoError(t, ReadingCommands(t.Context(), s.git.Dir, printed))
	for _, words := range []string{"apps.instance.running", "whole: ", "berth.plan/v1"} {
		require.Contains(t, printed.String(), words)
	}
	fmt.Fprintln(said, printed)

	// Written data: every object of the repository, every request to the forge, and
	// every file on disk except the secrets themselves.
	objects, err := s.git.Git("cat-file", "--batch-all-objects", "--batch", "--unordered")
	require.NoError(t, err)
	sinks := map[string]string{"logs, errors, HTTP answers and output": said.String(), "Git": objects}
	var sent strings.Builder
	for _, r := range s.forge.Requests() {
		fmt.Fprintln(&sent, r.URL, r.Body)
	}
	sinks["the forge"] = sent.String()
	mirror, err := filepath.Glob(filepath.Join(s.dir, "mirror", "*"))
	require.NoError(t, err)
	require.NotEmpty(t, mirror)
	require.NoError(t, filepath.WalkDir(filepath.Join(s.dir, "mirror"), func(p string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(p)
		sinks[p] = string(data)
		return err
	}))
	require.Contains(t, sinks["Git"], "InstanceStatus", "the Git objects are missing")
	require.Contains(t, sinks["Git"], "apps.instance.running")
	require.Contains(t, sinks["the forge"], "berth")
	for where, text := range sinks {
		for _, secret := range []string{canaryGit, canaryForge, canaryWebhook, canaryKey, canaryAPI, canaryJWT, canaryPull} {
			for form, s := range map[string]string{
				"": secret, "base64 of ": base64.StdEncoding.EncodeToString([]byte("x-access-token:" + secret)),
				"base64 of berth:": base64.StdEncoding.EncodeToString([]byte("berth:" + secret)),
				"hex of ":          hex.EncodeToString([]byte(secret)),
			} {
				if i := strings.Index(text, s); i >= 0 {
					t.Errorf("%s holds %s%s: …%q…", where, form, secret, text[max(0, i-200):min(len(text), i+len(s)+50)])
				}
			}
		}
	}
}

// deliver posts a webhook delivery signed with a secret.
func deliver(t *testing.T, listen, secret string) {
	t.Helper()
	body := []byte(`{"ref":"refs/heads/main","repository":{"full_name":"example/estate"}}`)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+listen+"/webhooks/github", bytes.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-GitHub-Event", "push")
	r.Header.Set("X-GitHub-Delivery", fmt.Sprint(time.Now().UnixNano()))
	r.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
}
