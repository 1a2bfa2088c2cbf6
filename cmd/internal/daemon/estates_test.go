package daemon

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"berth/cmd/internal/labtest"
	"berth/examples/await"
	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/webhooks"
	"berth/webhooks/api"
	"berth/webhooks/github/githubtest"
)

// kept is an estate under test, with a repository and a forge of its own.
type kept struct {
	*testing.T
	name, dir, path string
	git             *gittest.Server
	forge           *githubtest.Server
	neighbour       string // the document of an instance

	tip  string // of the status branch at the last reading
	tree reconciler.StatusTree
}

// personToken belongs to a user, not to an App.
const personToken = "a person's token"

// newKept makes the estate and writes its berth.yaml. It polls so rarely that only
// webhooks start work.
func newKept(t *testing.T, name, listen string, more map[string]any) *kept {
	t.Helper()
	k := &kept{T: t, name: name, dir: t.TempDir()}
	var err error
	k.neighbour, k.git = labtest.AssemblyYAML(), gittest.New(t, labtest.Files(), gittest.InProcess)
	k.forge, err = githubtest.New(githubtest.Options{
		RepoDir: k.git.Dir, Owner: "example", Repo: name, Secret: []byte("webhook secret of " + name),
		Tokens:      map[string]githubtest.Token{labtest.Token: {Login: labtest.App, App: true}, personToken: {Login: "berth-person"}},
		Permissions: map[string]string{"dora-genomes": "write", "berth-person": "write"},
		Required:    []string{plan.CheckValidate, plan.CheckPlan},
		WebhookURL:  "http://" + listen + "/webhooks/github", Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(k.forge.Close)
	file := func(name, text string) map[string]string {
		path := filepath.Join(k.dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return map[string]string{"file": path}
	}
	c := map[string]any{
		"estate":     name,
		"repository": map[string]any{"url": k.git.URL, "directory": filepath.Join(k.dir, "mirror")},
		"authority":  map[string]any{"administrators": []string{labtest.Administrator}},
		"forge": map[string]any{"kind": "github",
			"api_url": k.forge.APIURL(), "owner": "example", "repository": name, "login": labtest.App + "[bot]", "report": "checks",
			"token": file("token", labtest.Token), "webhook_secret": file("secret", "webhook secret of "+name),
		},
		"api": map[string]any{"tokens": []any{
			map[string]any{"login": "boris-bio", "token": file("boris", strings.Repeat(name, 8))},
			map[string]any{"login": "petra-phys", "token": file("petra", strings.Repeat("petra", 8))},
		}},
		"memory_runtime": map[string]any{"directory": filepath.Join(k.dir, "world"), "backends": []string{"slurm"}},
		"interval":       "200ms", "poll": "1h", "flush_window": "50ms",
	}
	k.path = k.configure("berth", c, more)
	return k
}

// configure writes a configuration: base with the sections of more in place of its
// own, and without those that are nil there.
func (k *kept) configure(name string, base, more map[string]any) (path string) {
	k.Helper()
	c := maps.Clone(base)
	maps.Copy(c, more)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	data, err := yaml.Marshal(c)
	require.NoError(k, err)
	path = filepath.Join(k.dir, name+".yaml")
	require.NoError(k, os.WriteFile(path, data, 0o600))
	return path
}

// propose opens a pull request of a user with permission, and waits until its plan
// is shown.
func (k *kept) propose(title string, key schema.Key, text, author string) (pull int) {
	k.Helper()
	k.git.MustCommit(k, "change", gittest.Commit{Message: title, Parent: k.git.Tip("main"), Files: map[string]string{pathOf(k, key): text}})
	pull, err := k.forge.OpenPull("change", title, author)
	require.NoError(k, err)
	k.shown(pull)
	return pull
}

// shown waits until the plan of a pull request is visible for users.
func (k *kept) shown(pull int) {
	k.Helper()
	await.True(k, fmt.Sprintf("the plan of pull request %d", pull), func() bool { return labtest.PlanShown(k.forge, pull) }, k.saw)
}

// saw is what people see at the forge and on the status branch, for a wait.
func (k *kept) saw() any {
	tree, err := k.status()
	pulls := map[int]any{}
	for n := 1; ; n++ {
		p, ok := k.forge.Pull(n)
		if !ok {
			break
		}
		pulls[n] = []any{p, k.forge.Checks(p.Head), k.forge.Comments(n)}
	}
	return fmt.Sprintf("%v\n%s\n%s\n%s", err, show(tree.Revision), show(tree.Units), show(pulls))
}

// merge merges a pull request at the estate's forge.
func (k *kept) merge(title string, key schema.Key, text, author string) {
	k.Helper()
	_, err := k.forge.Merge(k.propose(title, key, text, author), githubtest.Merge, author)
	require.NoError(k, err)
}

// status reads the status branch, once for each of its commits.
func (k *kept) status() (reconciler.StatusTree, error) {
	tip := k.git.Tip(reconciler.BranchStatus)
	if k.tip != "" && tip == k.tip {
		return k.tree, nil
	}
	repo, err := gitrepo.OpenLocal(k.git.Dir)
	if err != nil {
		return reconciler.StatusTree{}, err
	}
	defer repo.Close()
	tree, err := repo.ReadStatus(k.Context(), tip)
	if err == nil {
		k.tip, k.tree = tip, tree
	}
	return tree, err
}

// until waits until the status of a unit satisfies ok.
func (k *kept) until(what string, key schema.Key, ok func(*plan.Status) bool) {
	k.Helper()
	await.True(k, fmt.Sprintf("%s of %s: %s", key, k.name, what), func() bool {
		tree, err := k.status()
		return err == nil && tree.Units.Get(key) != nil && ok(tree.Units.Get(key))
	}, k.saw)
}

func running(s *plan.Status) bool { return s.Phase == plan.PhaseRunning && settled(*s) }

// An unknown estate gets an error envelope even where no API is configured.
func TestUnknownEstateIsNotFound(t *testing.T) {
	mux := webhooks.Mux(webhooks.MuxOptions{NoAPI: http.HandlerFunc(api.NotServed), Ready: func() error { return nil },
		Log: slog.New(slog.DiscardHandler)})
	for _, path := range []string{"/estates/nope/api/v1/apps/catalog", "/api/v1/apps/catalog"} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		require.Equal(t, http.StatusNotFound, w.Code)
		require.Contains(t, w.Body.String(), `"code":"resource.not_found"`)
		require.Contains(t, w.Body.String(), `"correlation_id":"`+w.Header().Get("X-Correlation-ID"))
	}
}

// Two estates run in one process. Each gets its own webhooks, a failure in one
// does not affect the other, and neither is visible at the other's address.
func TestSeveralEstates(t *testing.T) {
	t.Parallel()
	listen, err := labtest.FreePort()
	require.NoError(t, err)
	north := newKept(t, "north", listen, map[string]any{"listen": listen})
	south := newKept(t, "south", listen, nil)
	late := newKept(t, "late", listen, map[string]any{"listen": listen, "forge": nil, "api": nil})
	inTheWay := filepath.Join(late.dir, "mirror") // prevents its start
	require.NoError(t, os.WriteFile(inTheWay, nil, 0o600))

	said := &sink{}
	s, err := New([]string{north.path, south.path, late.path}, slog.New(slog.NewJSONHandler(said, nil)))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, nil) }()
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(said.String())
		}
	})
	t.Cleanup(cancel)
	get := func(path, token string) (int, string) {
		r, err := http.NewRequest(http.MethodGet, "http://"+listen+path, nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(text)
	}
	ready := func(code int, words string) {
		t.Helper()
		var got int
		var text string
		await.True(t, fmt.Sprint(code, " ", words), func() bool {
			got, text = get("/readyz", "")
			return got == code && strings.Contains(text, words)
		}, func() any { return fmt.Sprint(got, " ", text, "\n", lastLines(said)) })
	}
	// looks returns how often the estate's main was reconciled.
	looks := func(k *kept) (n float64) {
		_, text := get("/metrics", "")
		for line := range strings.Lines(text) {
			if rest, ok := strings.CutPrefix(line, `berth_reconciles_total{estate="`+k.name+`",result="ok",task="estate"} `); ok {
				_, err := fmt.Sscan(rest, &n)
				require.NoError(t, err)
			}
		}
		return n
	}

	more := func(k *kept, than float64) {
		t.Helper()
		await.True(t, "a reconciliation of "+k.name, func() bool { return looks(k) > than }, func() any { return lastLines(said) })
	}

	// An estate that cannot start does not delay the others, and starts later.
	ready(503, "estate late is not up")
	for _, k := range []*kept{north, south} {
		more(k, 0)
		_, text := get("/metrics", "")
		require.Regexp(t, `berth_estate_cache_trees_total\{estate="`+k.name+`",result="miss"\} [1-9]`, text)
		require.Regexp(t, `berth_estate_cache_bytes\{estate="`+k.name+`"\} [1-9]`, text)
		k.merge("assembly", labtest.Assembly, k.neighbour, "dora-genomes")
	}
	for _, k := range []*kept{north, south} {
		k.until("deployed", labtest.Assembly, running)
	}
	require.NoError(t, os.Remove(inTheWay))
	ready(200, "ready")
	_, text := get("/metrics", "")
	require.Contains(t, text, `berth_sync_frozen{estate="late"} 0`)
	require.Contains(t, text, "\ngo_goroutines ")

	// A webhook starts work in the estate of its forge only, whatever its content.
	before := looks(south)
	was := looks(north)
	north.git.MustCommit(t, "main", gittest.Commit{Message: "words", Files: map[string]string{"README.md": "north\n"}})
	require.NoError(t, north.forge.Sync())
	more(north, was)
	require.Equal(t, before, looks(south))
	hook := func(secret, repository string) int {
		body := fmt.Sprintf(`{"ref":"refs/heads/main","repository":{"full_name":%q}}`, repository)
		r, err := http.NewRequest(http.MethodPost, "http://"+listen+"/webhooks/github", strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-GitHub-Event", "push")
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(body))
		r.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	require.Equal(t, 401, hook("a guess", "example/south"))
	require.Equal(t, 202, hook("webhook secret of north", "example/south"))
	was = looks(north)
	require.Equal(t, 202, hook("webhook secret of north", "example/north"))
	more(north, was)
	require.Equal(t, before, looks(south))

	// A token is valid for one estate only, and estates share no path.
	const instances = "/api/v1/projects/biology.genomes/app-instances"
	code, text := get("/estates/north"+instances, strings.Repeat("north", 8))
	require.Equal(t, 200, code, text)
	require.Contains(t, text, "assembly")
	code, _ = get("/estates/south"+instances, strings.Repeat("north", 8))
	require.Equal(t, 401, code)
	for _, path := range []string{instances, "/estates/late" + instances, "/estates/other" + instances} {
		code, _ = get(path, strings.Repeat("north", 8))
		require.Equal(t, 404, code, path)
	}

	// The remote of one estate is down: the other one continues. Later both do.
	pulls := map[*kept]int{}
	for _, k := range []*kept{north, south} {
		pulls[k] = k.propose("train", labtest.Train, labtest.InstanceYAML(labtest.Train.Name, 1), "anna-lattice")
	}
	north.git.SetFaults(gittest.Faults{Down: true})
	for k, pull := range pulls {
		_, err := k.forge.Merge(pull, githubtest.Merge, "anna-lattice")
		require.NoError(t, err)
	}
	south.until("deployed", labtest.Train, running)
	tree, err := north.status()
	require.NoError(t, err)
	require.Nil(t, tree.Units.Get(labtest.Train))
	north.git.SetFaults(gittest.Faults{})
	north.until("deployed, later", labtest.Train, running)

	cancel()
	require.NoError(t, <-ended)
	led := map[string]bool{}
	for line := range strings.Lines(said.String()) {
		var l struct{ Msg, Estate string }
		require.NoError(t, json.Unmarshal([]byte(line), &l))
		require.LessOrEqual(t, strings.Count(line, `"estate":`), 1, line)
		if l.Msg == "leadership taken" {
			led[l.Estate] = true
		}
	}
	require.Equal(t, map[string]bool{"north": true, "south": true, "late": true}, led)
	for _, k := range []*kept{north, south} {
		require.Empty(t, k.forge.Violations())
	}
}

// sync --once converges each estate, and reports an estate that does not converge.
func TestSyncOfSeveralEstates(t *testing.T) {
	t.Parallel()
	north := newKept(t, "north", "", map[string]any{"forge": nil})
	south := newKept(t, "south", "", map[string]any{"forge": nil})
	sync := func() error {
		s, err := New([]string{north.path, south.path}, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		return onceAll(t, s)
	}
	require.NoError(t, sync())
	south.git.MustCommit(t, "main",
		gittest.Commit{Message: "nobody", Files: map[string]string{pathOf(t, labtest.Assembly): south.neighbour}})
	err := sync()
	require.ErrorContains(t, err, "estate south: ")
	require.NotContains(t, err.Error(), "north")
}

// Estates of one process that use the same exclusive value are refused before any
// of them starts; the error names both files.
func TestConflictingEstatesAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(file string, c map[string]any) string {
		base := map[string]any{
			"estate": file, "authority": map[string]any{"trust_main": true},
			"repository":     map[string]any{"url": "https://git.example/" + file + ".git", "directory": "/var/lib/berth/" + file},
			"memory_runtime": map[string]any{"directory": "/var/lib/world/" + file, "backends": []string{"slurm"}},
		}
		for k, v := range c {
			base[k] = v
		}
		data, err := yaml.Marshal(base)
		require.NoError(t, err)
		path := filepath.Join(dir, file+".yaml")
		require.NoError(t, os.WriteFile(path, data, 0o600))
		return path
	}
	repository := func(url, status, directory string) map[string]any {
		r := map[string]any{"url": url, "directory": directory}
		if status != "" {
			r["status_url"] = status
		}
		return map[string]any{"repository": r}
	}
	one := func(c map[string]any) string { return write("one", c) }
	for name, c := range map[string]struct {
		one, two map[string]any
		want     string // "": they go together
	}{
		"nothing in common":   {},
		"one name":            {two: map[string]any{"estate": "one"}, want: "the name estate: one"},
		"the same address":    {one: map[string]any{"listen": "127.0.0.1:1"}, two: map[string]any{"listen": "127.0.0.1:1"}},
		"the default address": {two: map[string]any{"listen": "127.0.0.1:8080"}},
		"another address": {one: map[string]any{"listen": "127.0.0.1:1"}, two: map[string]any{"listen": "127.0.0.1:8080"},
			want: "listens at one address"},
		"one cache": {two: repository("https://git.example/two.git", "", "/var/lib/berth/./one/"),
			want: "the cache /var/lib/berth/one"},
		"one repository": {two: repository("https://git.example/ONE/", "", "/d"),
			want: "berth's branches in https://git.example/one"},
		"status beside another": {two: repository("https://git.example/two.git", "https://git.example/one.git", "/d"),
			want: "berth's branches in https://git.example/one"},
		"one world": {two: map[string]any{"memory_runtime": map[string]any{"directory": "/var/lib/world/one",
			"backends": []string{"slurm"}}}, want: "the memory_runtime in /var/lib/world/one"},
	} {
		first, second := one(c.one), write("two", c.two)
		_, err := builtIn().readConfigs([]string{first, second})
		if c.want == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, c.want, name)
		require.ErrorContains(t, err, first, name)
		require.ErrorContains(t, err, second, name)
		var conflict *ConflictError
		require.ErrorAs(t, err, &conflict, name)
	}
	_, err := builtIn().readConfigs([]string{one(nil), filepath.Join(dir, "none.yaml")})
	require.ErrorContains(t, err, "none.yaml")
}
