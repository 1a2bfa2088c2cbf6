package loop_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/loop"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/artifact"
	"berth/schema"
)

const (
	manifestType = "application/vnd.docker.distribution.manifest.v2+json"
	solverFile   = "tenants/physics/projects/lab/artifacts/solver.yaml"
	versionFile  = "platform/catalog/batch/v2.yaml"
	policyFile   = "platform/policy/sources.yaml"
)

var (
	solverKey  = schema.Key{Kind: schema.KindArtifact, Tenant: "physics", Project: "lab", Name: "solver"}
	versionKey = schema.Key{Kind: schema.KindAppVersion, Parent: "batch", Name: "v2"}
	goodDigest = "sha256:" + strings.Repeat("a", 64)
	evilDigest = "sha256:" + strings.Repeat("e", 64)
)

// registryFiles declare an artifact source at a host and a policy that allows it.
func registryFiles(host string) map[string]string {
	return map[string]string{
		policyFile: "apiVersion: berth/v1\nkind: Policy\nmetadata: {name: sources}\nspec: {artifact_source_allowlist: [\"" + host +
			"\"]}\n",
		"platform/artifact-sources/registry.yaml": fmt.Sprintf(`apiVersion: berth/v1
kind: ArtifactSource
metadata: {name: registry}
spec: {type: oci, host: "%s", credential: pull, repositories: [lab]}
`, host),
	}
}

func solver(digest string, status schema.ArtifactStatus) map[string]string {
	extra := ""
	if digest != "" {
		extra = fmt.Sprintf("  digest: %s\n  status: %s\n", digest, status)
	}
	return map[string]string{solverFile: `apiVersion: berth/v1
kind: Artifact
metadata: {name: solver}
spec:
  app: batch
  source: registry
  reference: lab/solver:1
  media_type: ` + manifestType + "\n" + extra}
}

func versionFrom(digest string) map[string]string {
	return map[string]string{versionFile: strings.NewReplacer("name: v1", "name: v2", `version: "1"`,
		`version: "2"`).Replace(estateFiles()["platform/catalog/batch/v1.yaml"]) +
		fmt.Sprintf("    artifacts: {image: {source: registry, reference: \"lab/solver:1\", media_type: %s, digest: \"%s\"}}\n",
			manifestType, digest)}
}

// eyes is a verifier that returns the sight set by the test.
type eyes struct {
	mu    sync.Mutex
	sight runtimes.Sight
	looks int
	shown string // the credential used by the last observation
	only  string // the repositories of the last observation
}

func (e *eyes) Look(_ context.Context, source *schema.ArtifactSource, _, digest, _ string) runtimes.Sight {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.looks++
	e.shown, e.only = source.Spec.Credential, strings.Join(source.Spec.Repositories, ",")
	s := e.sight
	if s.State == runtimes.SightFound && digest != "" && s.Digest != digest {
		s.State, s.Reason, s.Message = runtimes.SightDifferent, "DigestMismatch", "other bytes"
	}
	return s
}

func (e *eyes) see(s runtimes.Sight) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sight = s
}

func (e *eyes) looked() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.looks
}

func looking(l runtimes.Artifacts) tune {
	return func(o *loop.Options) { o.Readers.Artifacts, o.Settings.ArtifactInterval = l, 50*time.Millisecond }
}

// resource reads the status of a resource from berth/status.
func (w *world) resource(key schema.Key) *plan.ThingStatus {
	tree := w.tree()
	require.Empty(w.t, tree.Warnings)
	return tree.Things[key]
}

// hasStatus waits for a phase and the condition Verified.
func (w *world) hasStatus(key schema.Key, phase string, verified plan.ConditionStatus, reason plan.Reason) *plan.ThingStatus {
	w.t.Helper()
	var s *plan.ThingStatus
	w.eventually(fmt.Sprintf("%s %s, verified %s %s", key, phase, verified, reason), func() bool {
		s = w.resource(key)
		return s != nil && s.Phase == phase && slices.ContainsFunc(s.Conditions, func(c plan.Condition) bool {
			return c.Type == "Verified" && c.Status == verified && c.Reason == reason
		})
	})
	return s
}

func (w *world) artifactEvents() (types []string) {
	for _, e := range w.events() {
		if t, ok := strings.CutPrefix(e.EventType, "apps.artifact."); ok {
			types = append(types, t)
		}
	}
	return types
}

var (
	there   = runtimes.Sight{State: runtimes.SightFound, Reason: "Found", Digest: goodDigest, MediaType: manifestType, Size: 7}
	missing = runtimes.Sight{State: runtimes.SightAbsent, Reason: "Absent", Message: "nothing there"}
	silent  = runtimes.Sight{State: runtimes.SightUnknown, Reason: "Timeout", Message: "takes too long"}
)

func TestArtifactPhasesFollowVerification(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := &eyes{sight: missing}
	d := w.start(looking(e))
	w.put(registryFiles("registry.example"))
	w.put(solver("", ""))
	w.hasStatus(solverKey, "intent", "False", "Absent")

	// The artifact is registered after its bytes are verified, not when it is declared.
	w.put(solver(goodDigest, schema.ArtifactRegistered))
	w.eventually("declared", func() bool { return strings.Contains(string(w.resource(solverKey).Detail), goodDigest) })
	w.hasStatus(solverKey, "intent", "False", "Absent")
	e.see(silent)
	w.hasStatus(solverKey, "intent", "Unknown", "Timeout")
	require.Empty(t, w.artifactEvents())
	e.see(there)
	s := w.hasStatus(solverKey, "registered", "True", "Found")
	require.True(t, s.Condition("Ready").Is("True"))
	w.eventually("event published", func() bool { return slices.Equal(w.artifactEvents(), []string{"registered"}) })

	// A later observation does not change the phase.
	e.see(silent)
	w.hasStatus(solverKey, "registered", "Unknown", "Timeout")
	require.NoError(t, d.stop())
	d = w.start(looking(e)) // the cache is empty
	e.see(there)
	w.hasStatus(solverKey, "registered", "True", "Found")

	commit := w.put(solver(goodDigest, schema.ArtifactPromoted))
	s = w.hasStatus(solverKey, "promoted", "True", "Found")
	require.Equal(t, commit, s.Revision)
	w.put(solver(goodDigest, schema.ArtifactDeprecated))
	w.hasStatus(solverKey, "deprecated", "True", "Found")
	require.NoError(t, d.stop())
	w.put(solver(goodDigest, schema.ArtifactRetired)) // no daemon runs
	d = w.start(looking(e))
	w.hasStatus(solverKey, "retired", "True", "Found")
	w.put(nil, solverFile)
	w.eventually("status removed", func() bool { return w.resource(solverKey) == nil })
	require.NoError(t, d.stop())

	require.Equal(t, []string{"registered", "promoted", "deprecated", "retired"}, w.artifactEvents())
	w.noEventTwice()
	for _, ev := range w.events() {
		if ev.EventType != "apps.artifact.promoted" {
			continue
		}
		var p map[string]string
		require.NoError(t, json.Unmarshal(ev.Payload, &p))
		require.Equal(t, map[string]string{"org_id": "physics", "project_id": "physics.lab", "app_slug": "batch", "artifact_id": "solver",
			"resource_name": "physics.lab/solver", "status": "promoted",
			"source": "registry", "reference": "lab/solver:1", "media_type": manifestType, "digest": goodDigest, "revision": commit}, p)
	}
}

// A declared phase has no effect before the bytes are verified: the artifact stays an
// intent, then each phase is reported. An artifact that is declared again with other
// bytes is verified again.
func TestUnverifiedArtifactIsNotPromoted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := &eyes{sight: missing}
	d := w.start(looking(e))
	w.put(registryFiles("registry.example"))
	w.put(solver(goodDigest, schema.ArtifactRegistered))
	w.hasStatus(solverKey, "intent", "False", "Absent")
	commit := w.put(solver(goodDigest, schema.ArtifactPromoted))
	w.eventually("declared", func() bool { return w.resource(solverKey).Revision == commit })
	w.hasStatus(solverKey, "intent", "False", "Absent")
	require.Empty(t, w.artifactEvents())
	e.see(there)
	w.hasStatus(solverKey, "promoted", "True", "Found")
	w.eventually("events published", func() bool { return slices.Equal(w.artifactEvents(), []string{"registered", "promoted"}) })

	require.NoError(t, d.stop())
	w.put(nil, solverFile)
	w.put(solver(evilDigest, schema.ArtifactRegistered)) // deletion and new document reach main together
	w.start(looking(e))
	w.hasStatus(solverKey, "intent", "False", "DigestMismatch")
	require.Equal(t, []string{"registered", "promoted"}, w.artifactEvents())
}

// hourly observes artifacts only once an hour unless asked.
func hourly(o *loop.Options) { o.Settings.ArtifactInterval = time.Hour }

// A declared phase takes effect only after a new verification, because the bytes
// may be missing by now. The pull request shows this as a finding. The old phase is
// kept, over restarts too, and the new one is reported after the verification.
func TestPromotionNeedsAFreshVerification(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := &eyes{sight: there}
	d := w.start(looking(e), hourly)
	w.put(registryFiles("registry.example"))
	w.put(solver(goodDigest, schema.ArtifactRegistered))
	w.hasStatus(solverKey, "registered", "True", "Found")

	e.mu.Lock() // observations hang
	e.sight = missing
	commit := w.put(solver(goodDigest, schema.ArtifactPromoted))
	s := w.hasStatus(solverKey, "registered", "Unknown", "NotLookedAt")
	require.Equal(t, commit, s.Revision)
	require.Equal(t, "it is promoted once its bytes were seen: nobody looked at the bytes since this change", s.Conditions[0].Message)
	e.mu.Unlock()
	w.hasStatus(solverKey, "registered", "False", "Absent")
	require.NoError(t, d.stop())
	d = w.start(looking(e), hourly)
	looks := e.looked()
	w.eventually("observed after the restart", func() bool { return e.looked() > looks })
	w.hasStatus(solverKey, "registered", "False", "Absent")
	require.NoError(t, d.stop())
	require.Equal(t, []string{"registered"}, w.artifactEvents())

	e.see(there)
	d = w.start(looking(e), hourly)
	w.hasStatus(solverKey, "promoted", "True", "Found")
	w.put(solver(goodDigest, schema.ArtifactDeprecated))
	w.hasStatus(solverKey, "deprecated", "True", "Found")
	e.see(missing)
	require.NoError(t, d.stop())
	d = w.start(looking(e), hourly)
	w.hasStatus(solverKey, "deprecated", "False", "Absent")

	pr := w.topic(7, solver(goodDigest, schema.ArtifactPromoted))
	d.Enqueue(reconciler.Item{Task: reconciler.TaskPull, Pull: 7})
	w.eventually("plan published", w.shownFully(7, pr.Head))
	p, _ := w.forge.last(7)
	require.False(t, p.Blocked())
	require.Len(t, p.Diagnostics, 1)
	require.Equal(t, solverFile+":10:11: warning: it is promoted once its bytes are found, and stays what it is until then; when Berth "+
		"looked last: nothing there [lifecycle.unseen]", p.Diagnostics[0].String())

	w.put(solver(goodDigest, schema.ArtifactPromoted))
	w.hasStatus(solverKey, "deprecated", "False", "Absent")
	w.eventually("decided", func() bool { return w.resource(solverKey).Revision == w.git.Tip("main") })
	require.Equal(t, []string{"registered", "promoted", "deprecated"}, w.artifactEvents())
	e.see(there)
	require.NoError(t, d.stop())
	d = w.start(looking(e), hourly)
	w.hasStatus(solverKey, "promoted", "True", "Found")
	require.NoError(t, d.stop())
	require.Equal(t, []string{"registered", "promoted", "deprecated", "promoted"}, w.artifactEvents())
	w.noEventTwice()
}

// An artifact keeps its uid and phase under a new name, also when it is renamed while
// no daemon runs. No event is repeated. A new artifact under the old name starts as an
// intent.
func TestRenamedArtifactKeepsPhase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := &eyes{sight: there}
	d := w.start(looking(e), hourly)
	w.put(registryFiles("registry.example"))
	at := func(name, uid, digest string, status schema.ArtifactStatus) map[string]string {
		text := strings.Replace(solver(digest, status)[solverFile], "{name: solver}", "{name: "+name+", uid: "+uid+"}", 1)
		return map[string]string{strings.Replace(solverFile, "solver", name, 1): text}
	}
	key := func(name string) schema.Key { k := solverKey; k.Name = name; return k }
	w.put(at("one", "a-1", goodDigest, schema.ArtifactRegistered))
	w.hasStatus(key("one"), "registered", "True", "Found")
	w.put(at("one", "a-1", goodDigest, schema.ArtifactPromoted))
	w.hasStatus(key("one"), "promoted", "True", "Found")

	e.see(silent)
	w.put(at("two", "a-1", goodDigest, schema.ArtifactPromoted), strings.Replace(solverFile, "solver", "one", 1))
	w.hasStatus(key("two"), "promoted", "Unknown", "Timeout")
	require.Nil(t, w.resource(key("one")))
	require.NoError(t, d.stop())

	both := at("three", "a-1", goodDigest, schema.ArtifactPromoted)
	for path, text := range at("two", "a-2", evilDigest, schema.ArtifactRegistered) {
		both[path] = text
	}
	w.put(both) // no daemon runs
	d = w.start(looking(e), hourly)
	w.hasStatus(key("three"), "promoted", "Unknown", "Timeout")
	w.hasStatus(key("two"), "intent", "Unknown", "Timeout")
	w.put(at("three", "a-1", goodDigest, schema.ArtifactDeprecated))
	w.hasStatus(key("three"), "deprecated", "Unknown", "Timeout")
	require.NoError(t, d.stop())
	require.Equal(t, []string{"registered", "promoted", "deprecated"}, w.artifactEvents())
	w.noEventTwice()
}

// An observation with an unchanged result writes nothing.
func TestUnchangedVerificationWritesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := &eyes{sight: there}
	w.start(looking(e))
	w.put(registryFiles("registry.example"))
	w.put(solver(goodDigest, schema.ArtifactRegistered))
	w.hasStatus(solverKey, "registered", "True", "Found")
	w.eventually("settled", func() bool { return len(w.artifactEvents()) == 1 })
	before, looks := w.git.Tip(reconciler.BranchStatus), e.looked()
	w.eventually("observations continue", func() bool { return e.looked() > looks+5 })
	require.Equal(t, before, w.git.Tip(reconciler.BranchStatus))
}

// Berth stops observing a source that policy no longer allows.
func TestOnlyAllowedSourcesAreRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := &eyes{sight: there}
	w.start(looking(e))
	w.put(registryFiles("registry.example"))
	w.put(solver(goodDigest, schema.ArtifactRegistered))
	w.hasStatus(solverKey, "registered", "True", "Found")

	w.put(map[string]string{policyFile: registryFiles("other.example")[policyFile]})
	w.hasStatus(solverKey, "registered", "Unknown", "SourceRefused")
	looks := e.looked()
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})
	w.eventually("another unit runs", w.phase("train", plan.PhaseRunning))
	require.Equal(t, looks, e.looked())

	w.put(registryFiles("registry.example"))
	w.hasStatus(solverKey, "registered", "True", "Found")
}

// Berth uses the platform's credential for versions, and for artifacts only within the
// repositories that the source names. Otherwise a tenant could learn about content
// that it may not read. The condition states this.
func TestPlatformCredentialRevealsNothingToTenants(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := &eyes{sight: there}
	w.start(looking(e))
	shown := func() string { e.mu.Lock(); defer e.mu.Unlock(); return e.shown }
	shares := func(repositories string) map[string]string {
		files := registryFiles("registry.example")
		for path := range files {
			files[path] = strings.Replace(files[path], ", repositories: [lab]", repositories, 1)
		}
		return files
	}
	message := func(s *plan.ThingStatus) string {
		return s.Conditions[slices.IndexFunc(s.Conditions, func(c plan.Condition) bool { return c.Type == "Verified" })].Message
	}
	w.put(shares(", repositories: [lab]"))
	w.put(solver(goodDigest, schema.ArtifactRegistered))
	w.hasStatus(solverKey, "registered", "True", "Found")
	require.Equal(t, "pull", shown())

	w.put(shares(`, repositories: ["{tenant}/{project}", commons]`))
	s := w.hasStatus(solverKey, "registered", "Unknown", "SourceRefused")
	require.Equal(t, "lab/solver:1 is not within what ArtifactSource registry shares with this project: physics/lab, commons", message(s))

	e.see(missing)
	w.put(shares(""))
	s = w.hasStatus(solverKey, "registered", "False", "Absent")
	require.Equal(t, "nothing there; the credential of ArtifactSource registry is not shown for what projects publish, as the source "+
		"names no repositories for them", message(s))
	require.Empty(t, shown())

	w.put(nil, solverFile)
	w.eventually("status removed", func() bool { return w.resource(solverKey) == nil })
	w.put(versionFrom(goodDigest))
	w.hasStatus(versionKey, "active", "False", "Absent")
	require.Equal(t, "pull", shown())
}

// A directory source of the platform is observed for a tenant only within its shared
// repositories. An observation gets these repositories as its limit; one for a
// platform version has no limit.
func TestDirectorySourceRevealsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := &eyes{sight: there}
	w.start(looking(e))
	shares := func(repositories string) map[string]string {
		files := registryFiles("registry.example")
		for path := range files {
			files[path] = strings.Replace(files[path], `type: oci, host: "registry.example", credential: pull, repositories: [lab]`,
				`type: file, directory: /srv/mirror`+repositories, 1)
		}
		return files
	}
	w.put(shares(`, repositories: ["{tenant}"]`))
	w.put(solver(goodDigest, schema.ArtifactRegistered))
	w.eventually("held", func() bool { return w.heldReasons()[solverFile] != "" })
	w.put(shares(""))
	w.eventually("decided", func() bool { return w.revision().Commit == w.git.Tip("main") })
	require.NotEmpty(t, w.heldReasons()[solverFile])
	require.Zero(t, e.looked(), "a held document causes no observation")

	w.put(shares(`, repositories: ["{tenant}", lab]`))
	w.hasStatus(solverKey, "registered", "True", "Found")
	e.mu.Lock()
	require.Equal(t, "lab", e.only)
	e.mu.Unlock()
	w.put(shares(""))
	s := w.hasStatus(solverKey, "registered", "Unknown", "SourceRefused")
	require.Contains(t, string(s.Detail), "shares nothing with projects")
	require.NotContains(t, string(s.Detail), "size")
	require.NotContains(t, string(s.Detail), "found")
	w.put(nil, solverFile)
	w.eventually("status removed", func() bool { return w.resource(solverKey) == nil })
	w.put(versionFrom(goodDigest))
	w.hasStatus(versionKey, "active", "True", "Found")
	e.mu.Lock()
	require.Empty(t, e.only)
	e.mu.Unlock()
}

// A version with different bytes blocks new instances. A version without any
// observation does not.
func TestVersionWithDifferentBytesBlocksNewInstances(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := &eyes{sight: there}
	w.start(looking(e))
	w.put(registryFiles("registry.example"))
	w.put(versionFrom(evilDigest))
	version := func(digest string) *schema.AppVersion {
		return &schema.AppVersion{Header: schema.Header{Key: versionKey}, Spec: schema.AppVersionSpec{Manifest: schema.Manifest{
			Artifacts: map[string]schema.ManifestArtifact{"image": {Source: "registry", Reference: "lab/solver:1", MediaType: manifestType,
				Digest: digest}}}}}
	}
	s := w.hasStatus(versionKey, "active", "False", "DigestMismatch")
	b, is := loop.VersionBlocked(version(evilDigest), s)
	require.True(t, is)
	require.Equal(t, plan.CodeUnverified, b.Code)
	require.Equal(t, "lab/solver:1", b.Artifact)
	require.Contains(t, b.Message, "lab/solver:1")

	e.see(silent)
	_, is = loop.VersionBlocked(version(evilDigest), w.hasStatus(versionKey, "active", "Unknown", "Timeout"))
	require.False(t, is)
	w.put(versionFrom(goodDigest))
	e.see(there)
	_, is = loop.VersionBlocked(version(goodDigest), w.hasStatus(versionKey, "active", "True", "Found"))
	require.False(t, is)
	_, is = loop.VersionBlocked(version(goodDigest), s)
	require.False(t, is, "an observation of other bytes does not apply to these")
	_, is = loop.VersionBlocked(version(goodDigest), nil)
	require.False(t, is)
}

// stuck blocks until its context is cancelled.
type stuck struct{ began chan struct{} }

func (s stuck) Look(ctx context.Context, _ *schema.ArtifactSource, _, _, _ string) runtimes.Sight {
	select {
	case s.began <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return silent
}

func TestSlowRegistryDelaysNoUnit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := stuck{make(chan struct{}, 1)}
	d := w.start(looking(s))
	files := registryFiles("registry.example")
	for i := range 5 {
		files[strings.Replace(solverFile, "solver", fmt.Sprintf("solver-%d", i), 1)] =
			strings.Replace(solver(goodDigest, schema.ArtifactRegistered)[solverFile], "name: solver", fmt.Sprintf("name: solver-%d", i), 1)
	}
	w.put(files)
	<-s.began
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})
	w.eventually("runs", w.phase("train", plan.PhaseRunning))
	require.NoError(t, d.stop(), "the daemon stops")
	require.Empty(t, w.artifactEvents())
	k := solverKey
	k.Name = "solver-0"
	require.NotContains(t, string(w.resource(k).Detail), "Timeout", "a cancelled observation leaves the status unchanged")
}

// slowOnes blocks on slow references until release and answers the others at once.
type slowOnes struct {
	free chan struct{}

	mu            sync.Mutex
	now, most     int            // slow observations in progress
	began         map[string]int // observations of each reference
	atFirstOthers int            // slow observations started before the first fast one; -1: no fast one yet
}

func (h *slowOnes) Look(ctx context.Context, _ *schema.ArtifactSource, reference, _, _ string) runtimes.Sight {
	slow := strings.HasPrefix(reference, "slow/")
	h.mu.Lock()
	if !slow && h.atFirstOthers < 0 {
		h.atFirstOthers = len(h.began)
	}
	h.began[reference]++
	if slow {
		h.now++
		h.most = max(h.most, h.now)
	}
	h.mu.Unlock()
	if slow {
		select {
		case <-h.free:
		case <-ctx.Done():
		}
		h.mu.Lock()
		h.now--
		h.mu.Unlock()
	}
	return there
}

// A blocked observation of one tenant delays only other observations of that tenant.
// Artifacts of another tenant are observed after at most a few of them, and every
// artifact is observed in the end.
func TestSlowRegistryDelaysNoOtherTenant(t *testing.T) {
	t.Parallel()
	const many = 60
	w := newWorld(t)
	h := &slowOnes{free: make(chan struct{}), began: map[string]int{}, atFirstOthers: -1}
	w.start(looking(h), func(o *loop.Options) { o.Settings.ArtifactInterval = time.Hour })
	files := solver(goodDigest, schema.ArtifactRegistered)
	for path, text := range registryFiles("registry.example") {
		files[path] = strings.Replace(text, ", credential: pull, repositories: [lab]", "", 1)
	}
	for i := range many { // artifacts of biology, which sort first
		name := fmt.Sprintf("slow-%d", i)
		path := strings.NewReplacer("physics", "biology", "solver", name).Replace(solverFile)
		files[path] = strings.NewReplacer("name: solver", "name: "+name, "lab/solver:1",
			fmt.Sprintf("slow/%d:1", i)).Replace(files[solverFile])
	}
	w.put(files)
	w.hasStatus(solverKey, "registered", "True", "Found")
	h.mu.Lock()
	require.LessOrEqual(t, h.atFirstOthers, 2)
	h.mu.Unlock()
	close(h.free)
	w.eventually("every artifact observed", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.began) == many+1
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	require.LessOrEqual(t, h.most, 2)
	for reference, looks := range h.began {
		require.Equal(t, 1, looks, reference)
	}
}

// oneSecret is the operator's secret store with one secret.
type oneSecret artifact.Credential

func (s oneSecret) Secret(context.Context, string) (artifact.Credential, error) {
	return artifact.Credential(s), nil
}

// An artifact of a real registry with tokens reaches status and events. Neither the
// secret nor a token appears in any of them.
func TestArtifactOfRealRegistryHidesSecrets(t *testing.T) {
	t.Parallel()
	const canary, token = "canary-71c2-secret", "canary-71c2-token"
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	open := httptest.NewServer(images)
	t.Cleanup(open.Close)
	img, err := random.Image(64, 1)
	require.NoError(t, err)
	ref, err := name.ParseReference(strings.TrimPrefix(open.URL, "http://") + "/lab/solver:1")
	require.NoError(t, err)
	require.NoError(t, remote.Write(ref, img))
	digest, err := img.Digest()
	require.NoError(t, err)

	var shown sync.Map
	var front *httptest.Server
	front = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, password, basic := r.BasicAuth()
		switch {
		case r.URL.Path == "/token" && basic && password == canary:
			shown.Store("secret", true)
			_, _ = fmt.Fprintf(rw, `{"token":%q,"expires_in":60}`, token)
		case r.Header.Get("Authorization") == "Bearer "+token:
			shown.Store("token", true)
			images.ServeHTTP(rw, r)
		default: // the answer repeats the request's credential
			rw.Header().Set("WWW-Authenticate", `Bearer realm="`+front.URL+`/token",service="test"`)
			http.Error(rw, canary+" "+token, http.StatusUnauthorized)
		}
	}))
	t.Cleanup(front.Close)
	host := strings.TrimPrefix(front.URL, "http://")
	looker := artifact.New(artifact.Options{
		PlainHTTP: []string{host}, Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Secrets: oneSecret{Username: "berth", Password: canary, Hosts: []string{host}},
	})

	w := newWorld(t)
	var mu sync.Mutex
	var logged bytes.Buffer
	d := w.start(looking(looker), func(o *loop.Options) {
		o.Log = slog.New(slog.NewJSONHandler(&locked{mu: &mu, w: &logged}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	w.put(registryFiles(host))
	w.put(solver(digest.String(), schema.ArtifactRegistered))
	w.hasStatus(solverKey, "registered", "True", "Found")
	w.eventually("event published", func() bool { return slices.Equal(w.artifactEvents(), []string{"registered"}) })
	w.put(versionFrom(evilDigest))
	w.hasStatus(versionKey, "active", "False", "DigestMismatch")
	front.CloseClientConnections()
	front.Close()
	w.hasStatus(solverKey, "registered", "Unknown", "Unreachable")
	require.NoError(t, d.stop())

	for _, what := range []string{"secret", "token"} {
		_, ok := shown.Load(what)
		require.True(t, ok, "the %s was used", what)
	}
	files, err := w.git.Files(reconciler.BranchStatus)
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for path := range files {
		text, err := w.git.Read(reconciler.BranchStatus, path)
		require.NoError(t, err)
		require.NotContains(t, text, "canary", path)
	}
	mu.Lock()
	defer mu.Unlock()
	require.Contains(t, logged.String(), "DigestMismatch")
	require.NotContains(t, logged.String(), "canary")
}

type locked struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
