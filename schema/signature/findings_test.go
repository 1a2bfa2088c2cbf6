package signature_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
	"berth/schema/signature"
)

// Garbage, a key of a different type than its line declares, a short RSA key and
// broken armor get a warning at their position. A good key gets none.
func TestUnusableKeysAreFindings(t *testing.T) {
	const good = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGXPo/Us+CDEOQ9dB6EdG54DDZeFF+WcSeB+3kN9pD2j"
	garbage := "ssh-ed25519 AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	wrongType := "ssh-rsa" + good[len("ssh-ed25519"):]
	armor := "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nAAAA\n-----END PGP PUBLIC KEY BLOCK-----\n"
	roles := &schema.RoleBinding{Header: schema.Header{File: "tenants/t/roles.yaml"},
		Spec: schema.RoleBindingSpec{Members: []schema.RoleMember{
			{Login: "ann", SigningKeys: []string{good, garbage}}, {Login: "ben", SigningKeys: []string{wrongType, armor}},
		}}}
	account := &schema.ServiceAccount{Header: schema.Header{File: "tenants/t/service-accounts/ci.yaml"},
		Spec: schema.ServiceAccountSpec{PublicKeys: []schema.PublicKey{{ID: "a", Key: garbage}}}}
	node := &schema.Node{Header: schema.Header{File: "platform/nodes/n.yaml"}, Spec: schema.NodeSpec{HostKey: wrongType}}
	d := &schema.Desired{Platform: &schema.Platform{Nodes: map[string]*schema.Node{"n": node}}, Tenants: map[string]*schema.TenantEstate{
		"t": {Name: "t", Roles: roles, ServiceAccounts: map[string]*schema.ServiceAccount{"ci": account}},
	}}
	var got []string
	for _, f := range signature.Findings(d, func(string) bool { return true }) {
		require.Equal(t, schema.SeverityWarning, f.Severity)
		require.Equal(t, signature.CodeUnusableKey, f.Code)
		got = append(got, f.File+" "+f.Path)
	}
	require.ElementsMatch(t, []string{
		"platform/nodes/n.yaml spec.host_key",
		"tenants/t/roles.yaml spec.members[0].signing_keys[1]", "tenants/t/roles.yaml spec.members[1].signing_keys[0]",
		"tenants/t/roles.yaml spec.members[1].signing_keys[1]", "tenants/t/service-accounts/ci.yaml spec.public_keys[0].key",
	}, got)
	require.Len(t, signature.Findings(d, func(file string) bool { return file == account.File }), 1)
}
