package daemon

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"

	"berth/reconciler/gitrepo"
	schemaestate "berth/schema/estate"
)

// tenantConfig is where a tenant's own repository is, and who Berth is there
// (requirement F8).
type tenantConfig struct {
	URL        string  `json:"url"`
	Username   string  `json:"username"`
	Token      *secret `json:"token"`
	SSHKey     string  `json:"ssh_key"`
	KnownHosts string  `json:"known_hosts"`
	AllowHTTP  bool    `json:"allow_http"`
	Accept     string  `json:"accept"`
}

// auth is who Berth is at a tenant's repository: nobody, unless it is said. What
// is configured for other repositories is not shown there.
func (t *tenantConfig) auth() gitrepo.AuthFunc {
	return func(context.Context) (gitrepo.Credentials, error) {
		if strings.HasPrefix(t.URL, "ssh://") {
			key, err := os.ReadFile(t.SSHKey)
			return gitrepo.Credentials{User: t.Username, SSHKey: key}, err
		}
		token, err := t.Token.read()
		return gitrepo.Credentials{User: t.Username, Token: token}, err
	}
}

// misfits are what does not go together.
func (t *tenantConfig) misfits(name string, tell func(wrong bool, at, field, message string)) {
	at := "tenants." + name
	field := "tenants." + name + "."
	ssh := strings.HasPrefix(t.URL, "ssh://")
	tell(hasCredentials(t.URL), field+"url", field+"url", credentialsNote)
	tell(ssh && t.SSHKey == "", at, field+"ssh_key", "an ssh:// URL needs it: add the path of a private key that may read there")
	tell(ssh && t.KnownHosts == "", at, field+"known_hosts", "an ssh:// URL needs it: add the path of a file that pins the host's key")
	tell(!ssh && t.SSHKey != "", at, field+"ssh_key", "it is for ssh:// URLs: take it out, or write the URL as ssh://git@HOST/PATH")
	tell(!ssh && t.KnownHosts != "", at, field+"known_hosts", "it is for ssh:// URLs: take it out, or write the URL as ssh://git@HOST/PATH")
	tell(ssh && t.Token != nil, at, field+"token", "it is for https:// URLs: take it out")
}

// composition says which tenants may have repositories of their own.
func (c *config) composition(loader *schemaestate.Loader) gitrepo.Composition {
	out := gitrepo.Composition{Document: func(ctx context.Context, tenant string, document []byte) (*gitrepo.TenantRepository, bool) {
		doc, ok, err := loader.Tenant(ctx, tenant, document)
		if err != nil || !ok {
			return nil, false
		}
		if r := doc.Spec.Repository; r != nil {
			return &gitrepo.TenantRepository{URL: r.URL, Branch: r.Branch}, true
		}
		return nil, true
	}}
	for _, name := range slices.Sorted(maps.Keys(c.Tenants)) {
		t := c.Tenants[name]
		out.Tenants = append(out.Tenants, gitrepo.Tenant{
			Name: name, URL: t.URL, Auth: t.auth(), KnownHosts: t.KnownHosts, AllowHTTP: t.AllowHTTP, Accept: t.Accept,
		})
	}
	return out
}
