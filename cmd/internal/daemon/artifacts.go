package daemon

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	"berth/runtimes/artifact"
	"berth/schema"
	"berth/webhooks/secret"
)

// artifactsConfig is the section artifacts of berth.yaml: the sources that Berth may
// observe in addition to those that policy allows.
type artifactsConfig struct {
	Interval    duration                  `json:"interval"`
	PlainHTTP   []string                  `json:"plain_http"`
	TokenHosts  map[string][]string       `json:"token_hosts"`
	Addresses   []string                  `json:"addresses"`
	Directories []string                  `json:"directories"`
	Secrets     map[string]registrySecret `json:"secrets"`
}

// registrySecret is a credential, with the tenants that may name it and the hosts
// that it may be sent to.
type registrySecret struct {
	Username string     `json:"username"`
	Password secret.Ref `json:"password"`
	Hosts    []string   `json:"hosts"`
	Tenants  []string   `json:"tenants"`
}

// looker returns the observer of artifacts.
func (c *artifactsConfig) looker() *artifact.Looker {
	o := artifact.Options{Secrets: registrySecrets(c.Secrets), PlainHTTP: c.PlainHTTP, TokenHosts: c.TokenHosts, Directories: c.Directories}
	for _, a := range c.Addresses {
		o.Addresses = append(o.Addresses, netip.MustParsePrefix(a)) // conflicts has checked them
	}
	return artifact.New(o)
}

// codeSecret is the code of the warning about a source whose secret Berth lacks.
const codeSecret = "artifact.secret"

// secretRule warns about a source that a change adds or edits and whose credential berth.yaml lacks, or has for other tenants or
// hosts. It says no more than that, so that a tenant learns nothing about the secrets of others. before may be nil. Pure.
func (c *artifactsConfig) secretRule(before, after *schema.Desired) (out []schema.Diagnostic) {
	platform := func(d *schema.Desired) map[string]*schema.ArtifactSource {
		if d == nil || d.Platform == nil {
			return nil
		}
		return d.Platform.ArtifactSources
	}
	out = c.withoutSecret(platform(before), platform(after))
	was := tenantsOf(before)
	for name, t := range tenantsOf(after) {
		switch old := was[name]; {
		case old == t: // unchanged tenants are shared
		case old == nil:
			out = append(out, c.withoutSecret(nil, t.ArtifactSources)...)
		default:
			out = append(out, c.withoutSecret(old.ArtifactSources, t.ArtifactSources)...)
		}
	}
	schema.SortDiagnostics(out)
	return out
}

// withoutSecret warns about the sources of a tenant or of the platform that differ from those before.
func (c *artifactsConfig) withoutSecret(before, after map[string]*schema.ArtifactSource) (out []schema.Diagnostic) {
	for name, s := range after {
		if old := before[name]; s.Spec.Credential == "" || old != nil && old.Blob == s.Blob {
			continue
		}
		of, known := c.Secrets[s.Spec.Credential]
		if !known || s.Key.Tenant != "" && !slices.Contains(of.Tenants, s.Key.Tenant) || !slices.Contains(of.Hosts, s.Spec.Host) {
			out = append(out, s.Warning("spec.credential", codeSecret,
				"berth.yaml has no secret of this name for %s and %s, so artifacts of this source cannot be checked: have an operator "+
					"add artifacts.secrets.%s",
				cmp.Or(s.Key.Tenant, "the platform"), s.Spec.Host, s.Spec.Credential))
		}
	}
	return out
}

// registrySecrets implements artifact.Secrets.
type registrySecrets map[string]registrySecret

func (s registrySecrets) Secret(_ context.Context, name string) (artifact.Credential, error) {
	of, ok := s[name]
	if !ok {
		return artifact.Credential{}, fmt.Errorf("berth.yaml has no artifacts.secrets.%s", name)
	}
	password, err := of.Password.Read()
	if err != nil {
		return artifact.Credential{}, err
	}
	return artifact.Credential{Username: of.Username, Password: artifact.Hidden(password), Hosts: of.Hosts, Tenants: of.Tenants}, nil
}
