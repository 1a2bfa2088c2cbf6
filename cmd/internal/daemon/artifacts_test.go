package daemon

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/runtimes"
	"berth/runtimes/artifact"
	"berth/schema"
)

func TestArtifactConfiguration(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "berth.yaml")
	read := func(artifacts string) (*Config, error) {
		text := "repository: {url: \"https://git.example/estate.git\", directory: /var/lib/berth/estate.git}\nauthority: {trust_main: " +
			"true}\nartifacts:\n" + artifacts
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return ReadConfig(path)
	}
	secretFile := filepath.Join(dir, "pull")
	require.NoError(t, os.WriteFile(secretFile, []byte("hush\n"), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "mirror"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mirror", "pkg.tar"), []byte("bytes"), 0o644))
	c, err := read(`  interval: 30m
  plain_http: ["127.0.0.1:5000"]
  addresses: [127.0.0.1/32]
  token_hosts: {registry-1.docker.io: [auth.docker.io]}
  directories: [` + dir + `/mirror]
  secrets:
    pull: {username: berth, password: {file: ` + secretFile + `}, hosts: ["registry.example:5000"], tenants: [physics]}
    lost: {username: berth, password: {env: BERTH_TEST_NOT_SET}, hosts: [registry.example]}
`)
	require.NoError(t, err)
	require.Equal(t, 30*time.Minute, time.Duration(c.Artifacts.Interval))
	require.Equal(t, map[string][]string{"registry-1.docker.io": {"auth.docker.io"}}, c.Artifacts.TokenHosts)
	secrets := registrySecrets(c.Artifacts.Secrets)
	got, err := secrets.Secret(t.Context(), "pull")
	require.NoError(t, err)
	require.Equal(t, artifact.Credential{Username: "berth", Password: "hush", Hosts: []string{"registry.example:5000"},
		Tenants: []string{"physics"}}, got)
	for _, name := range []string{"lost", "none"} {
		_, err = secrets.Secret(t.Context(), name)
		require.Error(t, err)
	}
	look := func(spec schema.ArtifactSourceSpec) runtimes.Sight {
		return c.Artifacts.looker().Look(t.Context(), &schema.ArtifactSource{Spec: spec}, "pkg.tar", "", "")
	}
	require.Equal(t, runtimes.SightFound,
		look(schema.ArtifactSourceSpec{Type: schema.SourceFile, Directory: filepath.Join(dir, "mirror")}).State)
	require.Equal(t, runtimes.ReasonDirectoryRefused, look(schema.ArtifactSourceSpec{Type: schema.SourceFile, Directory: dir}).Reason)
	require.Equal(t, runtimes.ReasonAddressRefused, look(schema.ArtifactSourceSpec{Type: schema.SourceHTTP, Host: "127.0.0.2:1"}).Reason)
	require.Equal(t, runtimes.ReasonUnreachable, look(schema.ArtifactSourceSpec{Type: schema.SourceHTTP, Host: "127.0.0.1:1"}).Reason)

	for wrong, want := range map[string]string{
		"  addresses: [127.0.0.1]\n":                                                 "artifacts.addresses",
		"  addresses: [10.0.0.0/99]\n":                                               "artifacts.addresses",
		"  token_hosts: {a.example: [\"https://x\"]}\n":                              "artifacts.token_hosts",
		"  token_hosts: {a.example: []}\n":                                           "artifacts.token_hosts",
		"  directories: [mirror]\n":                                                  "artifacts.directories",
		"  plain_http: [\"http://x\"]\n":                                             "artifacts.plain_http",
		"  secrets: {pull: {username: berth, password: {file: /k}}}\n":               "artifacts.secrets.pull.hosts",
		"  secrets: {pull: {username: berth, password: hush, hosts: [a.example]}}\n": "artifacts.secrets.pull.password",
	} {
		_, err := read(wrong)
		require.ErrorContains(t, err, want)
	}
}

// A source that names a secret which berth.yaml lacks, or has for others, is warned about in the change that brings it.
func TestChangeNamesAMissingSecretOfASource(t *testing.T) {
	c := artifactsConfig{Secrets: map[string]registrySecret{"pull": {Hosts: []string{"registry.example"}, Tenants: []string{"physics"}}}}
	estate := func(tenant, credential, host, blob string) *schema.Desired {
		source := &schema.ArtifactSource{Header: schema.Header{Key: schema.Key{Kind: schema.KindArtifactSource, Tenant: tenant, Name: "s"},
			File: "s.yaml", Blob: blob},
			Spec: schema.ArtifactSourceSpec{Type: schema.SourceOCI, Host: host, Credential: credential}}
		sources := map[string]*schema.ArtifactSource{"s": source}
		if tenant == "" {
			return &schema.Desired{Platform: &schema.Platform{ArtifactSources: sources}}
		}
		return &schema.Desired{Platform: &schema.Platform{},
			Tenants: map[string]*schema.TenantEstate{tenant: {Name: tenant, ArtifactSources: sources}}}
	}
	for _, x := range []struct {
		tenant, credential, host string
		warns                    bool
	}{
		{"physics", "pull", "registry.example", false},
		{"physics", "", "registry.example", false},
		{"", "pull", "registry.example", false},
		{"", "pul", "registry.example", true},
		{"biology", "pull", "registry.example", true},
		{"physics", "pull", "other.example", true},
	} {
		is := estate(x.tenant, x.credential, x.host, "1")
		require.Equal(t, x.warns, len(c.secretRule(nil, is)) == 1, x)
		require.Equal(t, x.warns, len(c.secretRule(estate(x.tenant, x.credential, x.host, "0"), is)) == 1, x)
		require.Empty(t, c.secretRule(is, is), x)
	}
}
