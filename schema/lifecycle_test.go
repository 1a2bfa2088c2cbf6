package schema_test

import (
	"cmp"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
)

func TestArtifactTransition(t *testing.T) {
	const intent = schema.ArtifactStatus("")
	states := []schema.ArtifactStatus{intent, schema.ArtifactRegistered, schema.ArtifactPromoted, schema.ArtifactDeprecated,
		schema.ArtifactRetired}
	allowed := map[[2]schema.ArtifactStatus]bool{
		{intent, schema.ArtifactRegistered}:                    true,
		{schema.ArtifactRegistered, schema.ArtifactPromoted}:   true,
		{schema.ArtifactRegistered, schema.ArtifactDeprecated}: true,
		{schema.ArtifactRegistered, schema.ArtifactRetired}:    true,
		{schema.ArtifactPromoted, schema.ArtifactDeprecated}:   true,
		{schema.ArtifactPromoted, schema.ArtifactRetired}:      true,
		{schema.ArtifactDeprecated, schema.ArtifactPromoted}:   true,
		{schema.ArtifactDeprecated, schema.ArtifactRetired}:    true,
	}
	for _, from := range states {
		for _, to := range states {
			err := schema.ArtifactTransition(from, to)
			require.Equal(t, from == to || allowed[[2]schema.ArtifactStatus{from, to}], err == nil, "%q to %q: %v", from, to, err)
		}
	}
}

var (
	bytesA = "sha256:" + strings.Repeat("a", 64)
	bytesB = "sha256:" + strings.Repeat("b", 64)
)

// published is an estate with one artifact, one version and one instance of it.
type published struct {
	status        schema.ArtifactStatus
	digest        string
	name, uid     string // of the artifact; "" is image
	artifact      func(*schema.ArtifactSpec)
	ownSource     bool
	version       func(*schema.AppVersionSpec)
	alone, shared bool // no instance; a shared runtime instead
}

func (p published) estate() *schema.Desired {
	header := func(k schema.Key) schema.Header {
		file, err := k.Path()
		if err != nil {
			panic(err)
		}
		return schema.Header{Key: k, File: file}
	}
	v := &schema.AppVersion{Header: header(schema.Key{Kind: schema.KindAppVersion, Parent: "batch", Name: "v1"}),
		Spec: schema.AppVersionSpec{
			Version: "1", RuntimeBackend: "bare_metal", Status: schema.StatusActive, Manifest: schema.Manifest{
				Roles:      map[string]schema.ManifestRole{"worker": {Max: 4}},
				Parameters: json.RawMessage(`{"a":1}`),
				Artifacts:  map[string]schema.ManifestArtifact{"image": {Source: "registry", Reference: "batch:1", Digest: bytesA}},
			}}}
	if p.version != nil {
		p.version(&v.Spec)
	}
	name := cmp.Or(p.name, "image")
	a := &schema.Artifact{Header: header(schema.Key{Kind: schema.KindArtifact, Tenant: "physics", Project: "lab", Name: name}),
		Spec: schema.ArtifactSpec{App: "batch", Source: "registry", Reference: "batch:1", MediaType: "application/x-tar", Digest: p.digest,
			Status: p.status}}
	a.UID = p.uid
	if p.artifact != nil {
		p.artifact(&a.Spec)
	}
	project := &schema.ProjectEstate{Artifacts: map[string]*schema.Artifact{name: a}}
	d := &schema.Desired{
		Platform: &schema.Platform{Versions: map[string]map[string]*schema.AppVersion{"batch": {"v1": v}}},
		Tenants:  map[string]*schema.TenantEstate{"physics": {Name: "physics", Projects: map[string]*schema.ProjectEstate{"lab": project}}},
	}
	if p.ownSource {
		d.Tenants["physics"].ArtifactSources = map[string]*schema.ArtifactSource{"registry": {}}
	}
	switch {
	case p.shared:
		key := schema.Key{Kind: schema.KindSharedRuntime, Name: "commons"}
		d.Platform.SharedRuntimes = map[string]*schema.SharedRuntimeEstate{"commons": {Runtime: &schema.SharedRuntime{Header: header(key),
			Spec: schema.SharedRuntimeSpec{App: "batch", Version: "v1"}}}}
	case !p.alone:
		i := &schema.Instance{Header: header(schema.InstanceKey("physics", "lab", "train")),
			Spec: schema.InstanceSpec{App: "batch", Version: "v1"}}
		project.Instances = map[string]*schema.Instance{"train": i}
	}
	return d
}

func TestLifecycle(t *testing.T) {
	const artifactFile, versionFile = "tenants/physics/projects/lab/artifacts/image.yaml", "platform/catalog/batch/v1.yaml"
	registered := published{status: schema.ArtifactRegistered, digest: bytesA}
	with := func(p published, change func(*published)) published { change(&p); return p }
	version := func(change func(*schema.AppVersionSpec)) published {
		return with(registered, func(p *published) { p.version = change })
	}
	status := func(s schema.ArtifactStatus) published { return with(registered, func(p *published) { p.status = s }) }
	none := &schema.Desired{Platform: &schema.Platform{}}
	const photoFile = "tenants/physics/projects/lab/artifacts/photo.yaml"
	alone := func(p *published) { p.alone = true }
	other := func(s *schema.ArtifactSpec) {
		s.App, s.Source, s.Reference, s.MediaType = "stream", "mirror", "batch:2", "application/zip"
	}
	var fixed []string
	for _, field := range []string{"app", "source", "reference", "media_type"} {
		fixed = append(fixed, "error lifecycle.fixed "+artifactFile+" spec."+field)
	}
	replaced := with(registered, func(p *published) { p.digest = bytesB }).estate() // image is another one now
	moved := with(registered, func(p *published) { p.uid, p.name = "a-1", "photo" }).estate()
	replaced.Tenants["physics"].Projects["lab"].Artifacts["photo"] = moved.Tenants["physics"].Projects["lab"].Artifacts["photo"]
	theirs := func(tenant string) *schema.Desired { // all of it is another tenant's
		d := with(status(schema.ArtifactPromoted), func(p *published) { p.uid = "a-1" }).estate()
		d.Tenants = map[string]*schema.TenantEstate{tenant: d.Tenants["physics"]}
		return d
	}
	bare := registered.estate() // as after the artifact was taken away
	bare.Tenants["physics"].Projects["lab"].Artifacts = nil

	for _, c := range []struct {
		name          string
		before, after *schema.Desired
		want          []string // "severity code file path", in order
	}{
		{"nothing changes", registered.estate(), registered.estate(), nil},
		{"an estate is taken over", none, status(schema.ArtifactPromoted).estate(), nil},
		{"new and promoted", bare, status(schema.ArtifactPromoted).estate(),
			[]string{"error lifecycle.status " + artifactFile + " spec.status"}},
		{"new and retired", bare, with(status(schema.ArtifactRetired), func(p *published) { p.digest = bytesB }).estate(),
			[]string{"error lifecycle.status " + artifactFile + " spec.status"}},
		{"new and registered", bare, registered.estate(), nil},
		{"a new intent", bare, published{}.estate(), nil},
		{"again, with other bytes", bare, with(registered, func(p *published) { p.digest = bytesB }).estate(), nil},
		{"a step", registered.estate(), status(schema.ArtifactPromoted).estate(), nil},
		{"a step back", status(schema.ArtifactPromoted).estate(), registered.estate(),
			[]string{"error lifecycle.status " + artifactFile + " spec.status"}},
		{"an intent again", registered.estate(), published{}.estate(), []string{"error lifecycle.status " + artifactFile + " spec.status"}},
		{"registered by its digest", published{}.estate(), registered.estate(), nil},
		{"promoted unseen", published{}.estate(), status(schema.ArtifactPromoted).estate(),
			[]string{"error lifecycle.status " + artifactFile + " spec.status"}},
		{"other bytes", registered.estate(), with(registered, func(p *published) { p.digest = bytesB }).estate(),
			[]string{"error lifecycle.digest " + artifactFile + " spec.digest"}},
		{"an intent of something else, elsewhere", published{}.estate(), published{artifact: other}.estate(), nil},
		{"registered elsewhere than was intended", published{}.estate(),
			with(registered, func(p *published) { p.artifact = other }).estate(), nil},
		{"something else, elsewhere", with(registered, alone).estate(),
			with(registered, func(p *published) { p.artifact, p.alone = other, true }).estate(), fixed},
		{"retired, and elsewhere", with(status(schema.ArtifactRetired), alone).estate(),
			with(status(schema.ArtifactRetired), func(p *published) { p.artifact, p.alone = other, true }).estate(), fixed},
		{"another name", with(status(schema.ArtifactPromoted), func(p *published) { p.uid = "a-1" }).estate(),
			with(status(schema.ArtifactPromoted), func(p *published) { p.uid, p.name = "a-1", "photo" }).estate(), nil},
		{"another name, and a step back", with(status(schema.ArtifactPromoted), func(p *published) { p.uid = "a-1" }).estate(),
			with(registered, func(p *published) { p.uid, p.name = "a-1", "photo" }).estate(),
			[]string{"error lifecycle.status " + photoFile + " spec.status"}},
		{"another name, and other bytes", with(registered, func(p *published) { p.uid = "a-1" }).estate(),
			with(registered, func(p *published) { p.uid, p.name, p.digest = "a-1", "photo", bytesB }).estate(),
			[]string{"error lifecycle.digest " + photoFile + " spec.digest"}},
		{"another name, and another uid", with(registered, func(p *published) { p.uid = "a-1" }).estate(),
			with(status(schema.ArtifactPromoted), func(p *published) { p.uid, p.name = "a-2", "photo" }).estate(),
			[]string{"error lifecycle.status " + photoFile + " spec.status"}},
		{"a uid, later", registered.estate(), with(status(schema.ArtifactPromoted), func(p *published) { p.uid = "a-1" }).estate(), nil},
		{"in the place of what moved, with other bytes", with(registered, func(p *published) { p.uid = "a-1" }).estate(), replaced, nil},
		{"another tenant's uid", theirs("chemistry"),
			with(status(schema.ArtifactPromoted), func(p *published) { p.uid, p.name = "a-1", "photo" }).estate(),
			[]string{"error lifecycle.status " + photoFile + " spec.status"}},
		{"deprecated in use", registered.estate(), status(schema.ArtifactDeprecated).estate(),
			[]string{"warning lifecycle.in-use " + artifactFile + " spec.status"}},
		{"retired in use", registered.estate(), status(schema.ArtifactRetired).estate(),
			[]string{"error lifecycle.in-use " + artifactFile + " spec.status"}},
		{"retired before it is used", with(status(schema.ArtifactRetired),
			func(p *published) { p.version = func(s *schema.AppVersionSpec) { s.Status = schema.StatusDisabled } }).estate(),
			status(schema.ArtifactRetired).estate(), []string{"warning lifecycle.in-use " + artifactFile + " spec.status"}},
		{"retired, of no active version", registered.estate(), with(status(schema.ArtifactRetired), func(p *published) {
			p.version = func(s *schema.AppVersionSpec) { s.Status = schema.StatusDeprecated }
		}).estate(), nil},
		{"retired, from another source of that name", with(registered, func(p *published) { p.ownSource = true }).estate(),
			with(status(schema.ArtifactRetired), func(p *published) { p.ownSource = true }).estate(), nil},

		{"deprecated version", registered.estate(), version(func(s *schema.AppVersionSpec) { s.Status = schema.StatusDeprecated }).estate(),
			nil},
		{"published again", version(func(s *schema.AppVersionSpec) { s.Status = schema.StatusDisabled }).estate(), registered.estate(),
			nil},
		{"upgrades from more", registered.estate(),
			version(func(s *schema.AppVersionSpec) { s.Manifest.UpgradeFrom = []string{"v0"} }).estate(), nil},
		{"other roles", registered.estate(),
			version(func(s *schema.AppVersionSpec) { s.Manifest.Roles = map[string]schema.ManifestRole{"worker": {Max: 5}} }).estate(),
			[]string{"error lifecycle.published " + versionFile + " spec.manifest.roles"}},
		{"other parameters", registered.estate(),
			version(func(s *schema.AppVersionSpec) { s.Manifest.Parameters = json.RawMessage(`{"a":2}`) }).estate(),
			[]string{"error lifecycle.published " + versionFile + " spec.manifest.parameters"}},
		{"other artifacts", registered.estate(), version(func(s *schema.AppVersionSpec) { s.Manifest.Artifacts = nil }).estate(),
			[]string{"error lifecycle.published " + versionFile + " spec.manifest.artifacts"}},
		{"another backend", registered.estate(), version(func(s *schema.AppVersionSpec) { s.RuntimeBackend = "k8s" }).estate(),
			[]string{"error lifecycle.published " + versionFile + " spec.runtime_backend"}},
		{"another backend under a shared runtime", published{shared: true}.estate(),
			published{shared: true, version: func(s *schema.AppVersionSpec) { s.RuntimeBackend = "k8s" }}.estate(),
			[]string{"error lifecycle.published " + versionFile + " spec.runtime_backend"}},
		{"another backend that nothing runs", published{alone: true}.estate(),
			published{alone: true, version: func(s *schema.AppVersionSpec) { s.RuntimeBackend = "k8s" }}.estate(),
			[]string{"warning lifecycle.published " + versionFile + " spec.runtime_backend"}},
		{"another backend, and the first instance", published{alone: true}.estate(),
			published{version: func(s *schema.AppVersionSpec) { s.RuntimeBackend = "k8s" }}.estate(),
			[]string{"warning lifecycle.published " + versionFile + " spec.runtime_backend"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, d := range schema.Lifecycle(c.before, c.after) {
				got = append(got, strings.Join([]string{string(d.Severity), d.Code, d.File, d.Path}, " "))
				require.NotEmpty(t, d.Message)
			}
			require.Equal(t, c.want, got)
		})
	}
}

// An operation is done once: its document cannot become another operation. Its reason may change,
// and one with another uid is another operation.
func TestOperationsStayWhatTheyAre(t *testing.T) {
	estate := func(change func(*schema.MemberOperation)) *schema.Desired {
		key := schema.Key{Kind: schema.KindMemberOperation, Tenant: "t", Project: "p", Name: "one"}
		file, err := key.Path()
		require.NoError(t, err)
		op := &schema.MemberOperation{Header: schema.Header{Key: key, File: file},
			Spec: schema.MemberOperationSpec{Instance: "i", Member: "worker-0", Operation: schema.OpDrain, Reason: "fan"}}
		change(op)
		return &schema.Desired{Platform: &schema.Platform{},
			Tenants: map[string]*schema.TenantEstate{"t": {Name: "t", Projects: map[string]*schema.ProjectEstate{
				"p": {Name: "p", Operations: map[string]*schema.MemberOperation{"one": op}},
			}}}}
	}
	before := estate(func(*schema.MemberOperation) {})
	for name, c := range map[string]struct {
		change func(*schema.MemberOperation)
		want   schema.Severity
	}{
		"nothing":        {func(o *schema.MemberOperation) {}, ""},
		"another uid":    {func(o *schema.MemberOperation) { o.UID, o.Spec.Operation = "new", schema.OpResume }, ""},
		"another reason": {func(o *schema.MemberOperation) { o.Spec.Reason = "a fan is loud" }, schema.SeverityWarning},
		"a deadline": {func(o *schema.MemberOperation) { o.Spec.OnJobs = &schema.OnJobs{CancelAfterSeconds: 60} },
			schema.SeverityWarning},
		"another operation": {func(o *schema.MemberOperation) { o.Spec.Operation = schema.OpResume }, schema.SeverityError},
		"another member":    {func(o *schema.MemberOperation) { o.Spec.Member = "worker-1" }, schema.SeverityError},
		"another instance":  {func(o *schema.MemberOperation) { o.Spec.Instance = "j" }, schema.SeverityError},
		"labels":            {func(o *schema.MemberOperation) { o.Spec.Labels = map[string]string{"a": "b"} }, schema.SeverityError},
	} {
		found := schema.Lifecycle(before, estate(c.change))
		if c.want == "" {
			require.Empty(t, found, name)
			continue
		}
		require.Len(t, found, 1, name)
		require.Equal(t, []any{schema.CodeOperationChanged, c.want}, []any{found[0].Code, found[0].Severity}, name)
	}
}
