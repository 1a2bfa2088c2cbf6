package daemon

import (
	"context"
	"os"
	"strings"

	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/composed"
	"berth/schema"
	schemaestate "berth/schema/estate"
	"berth/webhooks/secret"
)

// tenantConfig is where a tenant's own repository is, and Berth's credential there
// (requirement F8).
type tenantConfig struct {
	URL        string      `json:"url"`
	Username   string      `json:"username"`
	Token      *secret.Ref `json:"token"`
	SSHKey     string      `json:"ssh_key"`
	KnownHosts string      `json:"known_hosts"`
	AllowHTTP  bool        `json:"allow_http"`
	Accept     string      `json:"accept"`
}

// auth returns the credential for a tenant's repository: none unless configured.
// Credentials of other repositories are never sent there.
func (t *tenantConfig) auth() gitrepo.AuthFunc {
	return func(context.Context) (gitrepo.Credentials, error) {
		if strings.HasPrefix(t.URL, "ssh://") {
			key, err := os.ReadFile(t.SSHKey)
			return gitrepo.Credentials{User: t.Username, SSHKey: key}, err
		}
		token, err := t.Token.Read()
		return gitrepo.Credentials{User: t.Username, Token: token}, err
	}
}

// composition names the tenants that may have repositories of their own.
func (c *Config) composition(loader *schemaestate.Loader) composed.Composition {
	out := composed.Composition{Document: func(ctx context.Context, tenant string, document []byte) (*composed.TenantRepository, bool) {
		doc, ok, err := loader.Tenant(ctx, tenant, document)
		if err != nil || !ok {
			return nil, false
		}
		if r := doc.Spec.Repository; r != nil {
			return &composed.TenantRepository{URL: r.URL, Branch: r.Branch}, true
		}
		return nil, true
	}}
	for name, t := range schema.Sorted(c.Tenants) {
		out.Tenants = append(out.Tenants, composed.Tenant{
			Name: name, URL: t.URL, Auth: t.auth(), KnownHosts: t.KnownHosts, AllowHTTP: t.AllowHTTP, Accept: t.Accept,
		})
	}
	return out
}
