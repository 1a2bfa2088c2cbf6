package daemon

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/cmd/internal/labtest"
	"berth/examples/await"
	"berth/reconciler"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
	"berth/webhooks"
	"berth/webhooks/forge"
	"berth/webhooks/secret"
)

// depot is a forge that Berth does not know: in memory, with one project. It is a
// forge.Client, too.
type depot struct {
	mu       sync.Mutex
	pulls    map[int]reconciler.PullRequest
	checks   map[string]map[string]plan.Check // by commit and name
	comments map[int]string                   // the plan in Berth's comment, by pull request
}

func newDepot() *depot {
	return &depot{pulls: map[int]reconciler.PullRequest{}, checks: map[string]map[string]plan.Check{}, comments: map[int]string{}}
}

// depotSection is the section forge for a depot.
type depotSection struct {
	Project    string     `json:"project"`
	SigningKey secret.Ref `json:"signing_key"`
	forge      *depot
}

const depotCUE = `
_project: "^[a-z]+/[a-z]+$"
#Says: {(_project): "the path of a project"}
#Forge: {
	// which forge it is
	kind!: _kinds
	// path of the project
	project!: =~_project
	// secret that signs deliveries
	signing_key!: #Secret
}
`

// kind is the depot as the daemon knows it.
func (d *depot) kind() forge.Kind {
	return forge.Kind{
		Name: "depot", CUE: depotCUE, New: func() forge.Section { return &depotSection{forge: d} },
		Webhook: webhooks.Format{
			Claim: depotClaim, Read: readDepot, Events: []string{"change"},
			Envelope: func(h http.Header) (event, id string) { return h.Get("Depot-Event"), h.Get("Depot-Id") },
		},
		OpenLimiter: func(string, time.Time, func(error)) (forge.Limiter, error) { return noLimit{}, nil },
		PullRefs:    reconciler.PullRefs{Head: func(number int) string { return fmt.Sprint("refs/changes/", number) }},
		IsPage:      func(u *url.URL) bool { return u.Hostname() == "depot.example" && u.Path == "/" },
	}
}

type noLimit struct{}

func (noLimit) Save(time.Time) {}

// depotClaim is a signature in base64 of id, time and body.
func depotClaim(h http.Header) (webhooks.Claim, bool) {
	sum, err := base64.StdEncoding.DecodeString(h.Get("Depot-Signature"))
	return webhooks.Claim{Sum: sum, Hash: func(secret []byte) hash.Hash {
		m := hmac.New(sha256.New, secret)
		fmt.Fprintf(m, "%s.%s.", h.Get("Depot-Id"), h.Get("Depot-Time"))
		return m
	}}, err == nil && len(sum) > 0
}

func readDepot(id, _, _ string, body []byte) (webhooks.Delivery, error) {
	var change struct {
		Project string
		Number  int
	}
	err := json.Unmarshal(body, &change)
	return webhooks.Delivery{ID: id, Events: []webhooks.Event{{Kind: webhooks.PullRequest, Repo: change.Project, Number: change.Number}}},
		err
}

func (s *depotSection) Complete()                      {}
func (s *depotSection) Warnings(string, bool) []string { return nil }
func (s *depotSection) FullName() string               { return s.Project }
func (s *depotSection) IsOwn(sender string) bool       { return sender == "berth" }
func (s *depotSection) Identity() string               { return "the depot" }
func (s *depotSection) KeyFields() []string            { return nil }

func (s *depotSection) Conflicts(check forge.Check) {
	check(s.Project == "closed/project", "forge.project", "forge.project", "the project is closed")
}

func (s *depotSection) WebhookSecrets() []forge.SecretField {
	return []forge.SecretField{{Field: "forge.signing_key", Ref: &s.SigningKey}}
}

func (s *depotSection) Access() (forge.Access, error) {
	return forge.Access{Open: func(forge.Options) (forge.Client, error) { return s.forge, nil }}, nil
}

func (d *depot) Pull(_ context.Context, number int) (reconciler.PullRequest, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	pr, ok := d.pulls[number]
	if !ok {
		return pr, reconciler.ErrNotFound
	}
	return pr, nil
}

func (d *depot) OpenPulls(context.Context) ([]reconciler.PullRequest, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Values(d.pulls)), nil
}

func (d *depot) Report(_ context.Context, commit string, c plan.Check) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.checks[commit] == nil {
		d.checks[commit] = map[string]plan.Check{}
	}
	d.checks[commit][c.Name] = c
	return nil
}

func (d *depot) Comment(_ context.Context, pull int, c reconciler.Comment) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.Plan != nil {
		d.comments[pull] = *c.Plan
	}
	return nil
}

func (d *depot) PullsOf(context.Context, string) ([]reconciler.PullRequest, error) { return nil, nil }
func (d *depot) Approvers(context.Context, reconciler.PullRequest) ([]string, error) {
	return nil, nil
}
func (d *depot) CancelChecks(context.Context, string) error { return nil }
func (d *depot) Commands(context.Context, time.Time) ([]reconciler.CommandComment, error) {
	return nil, nil
}
func (d *depot) CommandsOf(context.Context, int) ([]reconciler.CommandComment, error) {
	return nil, nil
}
func (d *depot) React(context.Context, reconciler.CommandComment, reconciler.Reaction) error {
	return nil
}
func (d *depot) Permission(context.Context, string) (reconciler.Permission, error) {
	return reconciler.CanWrite, nil
}
func (d *depot) Rerequest(string) {}
func (d *depot) FilesURL() string { return "https://depot.example/files/" }
func (d *depot) Deliveries(context.Context, time.Time) ([]forge.Logged, error) {
	return nil, nil
}
func (d *depot) Delivery(context.Context, forge.Logged) (webhooks.Delivery, error) {
	return webhooks.Delivery{}, reconciler.ErrNotFound
}

// deliver posts a delivery as a depot does, and returns the status code.
func (d *depot) deliver(t *testing.T, to, id, key, body string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, to, strings.NewReader(body))
	require.NoError(t, err)
	m := hmac.New(sha256.New, []byte(key))
	fmt.Fprintf(m, "%s.12:00.%s", id, body)
	for name, value := range map[string]string{
		"Depot-Event": "change", "Depot-Id": id, "Depot-Time": "12:00", "Depot-Signature": base64.StdEncoding.EncodeToString(m.Sum(nil)),
	} {
		r.Header.Set(name, value)
	}
	resp, err := poster.Do(r)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}

// A second forge is one value in the registry: the daemon reads its section of
// berth.yaml, takes its deliveries by its own signature, and plans its pull requests.
func TestAnotherForgeDeliversAndGetsChecks(t *testing.T) {
	t.Parallel()
	d, git, dir := newDepot(), gittest.New(t, labtest.Files()), t.TempDir()
	listen, err := labtest.FreePort()
	require.NoError(t, err)
	key := put(t, filepath.Join(dir, "key"), "the key of the depot\n")
	config := put(t, filepath.Join(dir, "berth.yaml"), fmt.Sprintf(`estate: lab
repository: {url: %q, directory: %s}
authority: {administrators: [%s]}
forge: {kind: depot, project: lab/estate, signing_key: {file: %s}}
memory_runtime: {directory: %s, backends: [slurm]}
listen: %s
poll: 1h
flush_window: 50ms
`, git.URL, filepath.Join(dir, "mirror"), labtest.Administrator, key, filepath.Join(dir, "world"), listen))
	r := newRegistry(append(forges(), d.kind()))
	said := &sink{}
	s, err := r.newDaemon([]string{config}, slog.New(slog.NewTextHandler(said, nil)))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, nil) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-ended) })
	saw := func() any { return lastLines(said) }
	await.True(t, "the first decision", func() bool { return s.ready() == nil }, saw)

	head := git.MustCommit(t, "change", gittest.Commit{Message: "train", Parent: git.Tip("main"), Files: trainOf(1)})
	require.NoError(t, git.SetRef("refs/changes/7", head))
	d.mu.Lock()
	d.pulls[7] = reconciler.PullRequest{
		Number: 7, Title: "train", Author: labtest.ProjectAdmin, Head: head, BaseBranch: "main", Open: true, Updated: time.Now().UTC(),
	}
	d.mu.Unlock()
	to := "http://" + listen + "/webhooks/depot"
	const change = `{"project": "lab/estate", "number": 7}`
	require.Equal(t, http.StatusUnauthorized, d.deliver(t, to, "1", "a guess", change))
	require.Equal(t, http.StatusNotFound, d.deliver(t, "http://"+listen+"/webhooks/"+forges()[0].Name, "1", "the key of the depot", change))
	require.Equal(t, http.StatusAccepted, d.deliver(t, to, "1", "the key of the depot", `{"project": "lab/other", "number": 7}`))
	require.Empty(t, s.all[0].deliveries.Pending(), "it is of another project")
	require.Equal(t, http.StatusAccepted, d.deliver(t, to, "2", "the key of the depot", change))
	await.True(t, "the checks and the plan", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		done := d.checks[head]
		return done[plan.CheckValidate].Conclusion == plan.Success && done[plan.CheckPlan].Conclusion == plan.Success && d.comments[7] != ""
	}, saw)
}

// berth.yaml is checked by the section of the forge that it names.
func TestConfigurationOfAnotherForge(t *testing.T) {
	t.Parallel()
	r := newRegistry(append(forges(), newDepot().kind()))
	path := filepath.Join(t.TempDir(), "berth.yaml")
	for section, want := range map[string]string{
		"{kind: depot, project: lab/estate, signing_key: {file: /nowhere/key}}": "",
		"{kind: depot, project: Lab}": ":3:31: forge.project: got \"Lab\", want text: the path " +
			"of a project",
		"{kind: depot, project: lab/estate, signing_key: s3cret}":       "forge.signing_key: a secret is named here, not written",
		"{kind: depot, project: closed/project, signing_key: {env: S}}": ":3:31: forge.project: the project is closed",
		"{kind: depto, project: lab/estate}":                            "forge.kind: got \"depto\", want one of \"github\", \"depot\"",
		"{project: lab/estate}":                                         "forge.kind: is missing: add kind: github or depot",
		"{kind: github, project: lab/estate}":                           "forge.project: no such field",
	} {
		put(t, path, "repository: {url: \"https://git.example/e.git\", directory: cache}\nauthority: {administrators: [anna]}\nforge: "+
			section+"\n")
		c, err := r.readConfig(path)
		if want == "" {
			require.NoError(t, err)
			require.Equal(t, "lab/estate", c.Forge.FullName())
			require.ErrorContains(t, c.checkFiles(), "forge.signing_key: secret: open /nowhere/key")
			continue
		}
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "s3cret")
	}
	read := func(section string) *Config {
		const rest = "repository: {url: \"https://git.example/e.git\", directory: cache}\nauthority: {administrators: [anna]}\nforge: "
		c, err := r.readConfig(put(t, path, rest+section+"\n"))
		require.NoError(t, err)
		return c
	}
	known := read("{kind: github, owner: lab, repository: e, token: {env: T}, webhook_secret: {env: S}}")
	require.Equal(t, "forge.kind", known.restartNeeded(read("{kind: depot, project: lab/estate, signing_key: {env: S}}")))
	put(t, path, "repository: {url: \"https://depot.example/\", directory: cache}\nauthority: {administrators: [anna]}\n")
	_, err := r.readConfig(path)
	require.ErrorContains(t, err, "repository.url: this is a page of the forge")
	page, err := r.reference("Configuration", "All fields.")
	require.NoError(t, err)
	require.Contains(t, string(page), "## forge of kind depot\n\n| Field | Type | Description |\n|---|---|---|\n| `forge.kind` |")
	require.Contains(t, string(page), "| `forge.project` | the path of a project | path of the project **(required)** |\n")
}
