package signature_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"io"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/armor"
	openpgp "github.com/ProtonMail/go-crypto/openpgp/v2"
	"github.com/hiddeco/sshsig"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"pgregory.net/rapid"

	"berth/schema"
	"berth/schema/authority"
	"berth/schema/signature"
)

// person has a key, and signs with it without an external program.
type person struct {
	key  ssh.Signer
	line string
}

func newPerson(t *testing.T) person {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	key, err := ssh.NewSignerFromKey(private)
	require.NoError(t, err)
	return person{key, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key.PublicKey())))}
}

func (p person) sign(t *testing.T, payload string) []byte {
	t.Helper()
	s, err := sshsig.Sign(strings.NewReader(payload), p.key, sshsig.HashSHA512, "git")
	require.NoError(t, err)
	return sshsig.Armor(s)
}

func binding(members ...schema.RoleMember) *schema.RoleBinding {
	return &schema.RoleBinding{Spec: schema.RoleBindingSpec{Members: members}}
}

func member(login string, keys ...string) schema.RoleMember {
	return schema.RoleMember{Login: login, Role: "any", SigningKeys: keys}
}

func account(tenant, project, name string, keys ...string) map[string]*schema.ServiceAccount {
	a := &schema.ServiceAccount{Header: schema.Header{Key: schema.Key{Kind: schema.KindServiceAccount, Tenant: tenant, Project: project,
		Name: name}}}
	for _, k := range keys {
		a.Spec.PublicKeys = append(a.Spec.PublicKeys, schema.PublicKey{Key: k})
	}
	return map[string]*schema.ServiceAccount{name: a}
}

func both(a, b map[string]*schema.ServiceAccount) map[string]*schema.ServiceAccount {
	maps.Copy(a, b)
	return a
}

// A key belongs to the person that a binding or an account names. A claim
// elsewhere does not take it away.
func TestWidestClaimOwnsTheKey(t *testing.T) {
	var (
		platform = authority.Scope{}
		physics  = authority.Scope{Tenant: "physics"}
		lhc      = authority.Scope{Tenant: "physics", Project: "lhc"}
		biology  = authority.Scope{Tenant: "biology"}
		cells    = authority.Scope{Tenant: "biology", Project: "cells"}
	)
	p := newPerson(t)
	robot := schema.Key{Kind: schema.KindServiceAccount, Tenant: "physics", Project: "lhc", Name: "robot"}
	person := func(login string) authority.Actor {
		return authority.Actor{Login: login, Proof: authority.ProofSignature, SigningKey: p.line}
	}
	for name, c := range map[string]struct {
		platform, physics, lhc, biology *schema.RoleBinding
		accounts, others                map[string]*schema.ServiceAccount // of physics.lhc, of biology
		administrators, keys            []string
		want                            map[authority.Scope]authority.Actor // nobody in other scopes
	}{
		"nobody's": {physics: binding(member("anna"))},
		"platform": {
			platform: binding(member("anna", p.line)),
			want: map[authority.Scope]authority.Actor{platform: person("anna"), physics: person("anna"), lhc: person("anna"),
				biology: person("anna"), cells: person("anna")},
		},
		"tenant": {physics: binding(member("anna", p.line)),
			want: map[authority.Scope]authority.Actor{physics: person("anna"), lhc: person("anna")}},
		"project": {lhc: binding(member("anna", p.line)), want: map[authority.Scope]authority.Actor{lhc: person("anna")}},
		"two roles of one person": {
			physics: binding(member("anna", p.line), member("Anna", p.line)),
			want:    map[authority.Scope]authority.Actor{physics: person("anna"), lhc: person("anna")},
		},
		"two people": {physics: binding(member("anna", p.line), member("ben", p.line))},
		"two people at the platform are nobody below it": {
			platform: binding(member("anna", p.line), member("ben", p.line)), physics: binding(member("anna", p.line)),
		},
		"another tenant's claim is nothing here": {
			physics: binding(member("anna", p.line)), biology: binding(member("eve", p.line)),
			want: map[authority.Scope]authority.Actor{physics: person("anna"), lhc: person("anna"), biology: person("eve"),
				cells: person("eve")},
		},
		"a tenant cannot make the platform's key nobody's": {
			platform: binding(member("anna", p.line)), biology: binding(member("eve", p.line)),
			others: account("biology", "", "robot", p.line),
			want: map[authority.Scope]authority.Actor{platform: person("anna"), physics: person("anna"), lhc: person("anna"),
				biology: person("anna"), cells: person("anna")},
		},
		"first administrators": {
			administrators: []string{"root", "other"}, keys: []string{p.line}, platform: binding(member("eve", p.line)),
			want: map[authority.Scope]authority.Actor{platform: person("root"), physics: person("root"), lhc: person("root"),
				biology: person("root"), cells: person("root")},
		},
		"administrators' keys without administrators": {keys: []string{p.line}},
		"service account": {
			accounts: account("physics", "lhc", "robot", p.line),
			want:     map[authority.Scope]authority.Actor{lhc: {ServiceAccount: robot, Proof: authority.ProofSignature}},
		},
		"a service account cannot take a person's key from them": {
			lhc:      binding(member("anna", p.line)),
			accounts: both(account("physics", "lhc", "robot", p.line), account("physics", "lhc", "other", p.line)),
			want:     map[authority.Scope]authority.Actor{lhc: person("anna")},
		},
		"nor where two people claim it": {lhc: binding(member("anna", p.line), member("ben", p.line)),
			accounts: account("physics", "lhc", "robot", p.line)},
		"two service accounts": {accounts: both(account("physics", "lhc", "robot", p.line), account("physics", "lhc", "other", p.line))},
		"suspended binding": {physics: &schema.RoleBinding{Header: schema.Header{Suspend: true},
			Spec: schema.RoleBindingSpec{Members: []schema.RoleMember{member("anna", p.line)}}}},
		"what is suspended claims nothing of others": {
			lhc: binding(member("anna", p.line)), accounts: map[string]*schema.ServiceAccount{"robot": {
				Header: schema.Header{Key: robot, Suspend: true},
				Spec:   schema.ServiceAccountSpec{PublicKeys: []schema.PublicKey{{Key: p.line}}},
			}},
			want: map[authority.Scope]authority.Actor{lhc: person("anna")},
		},
		"keys that are none": {
			physics: binding(member("eve", "ssh-ed25519 AAAA", "ssh-rsa "+strings.Fields(p.line)[1],
				"-----BEGIN PGP PUBLIC KEY BLOCK-----\nno\n"), member("anna", p.line)),
			want: map[authority.Scope]authority.Actor{physics: person("anna"), lhc: person("anna")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := &schema.Desired{Platform: &schema.Platform{}, Tenants: map[string]*schema.TenantEstate{
				"physics": {Roles: c.physics, Projects: map[string]*schema.ProjectEstate{"lhc": {Roles: c.lhc,
					ServiceAccounts: c.accounts}}},
				"biology": {Roles: c.biology, ServiceAccounts: c.others, Projects: map[string]*schema.ProjectEstate{"cells": {}}},
			}}
			if c.platform != nil {
				d.Platform.Roles = map[string]*schema.RoleBinding{"people": c.platform}
			}
			ring := signature.Keys(authority.Rules{Base: d, Administrators: c.administrators, AdministratorKeys: c.keys})
			s, err := ring.Signer([]byte("payload"), p.sign(t, "payload"), time.Now())
			for _, at := range []authority.Scope{platform, physics, lhc, biology, cells} {
				got := authority.Actor{}
				if err == nil {
					var no error
					got, no = s.Actor(at)
					require.Equal(t, no != nil, got.Proof == authority.ProofNone, "%v", at)
				}
				require.Equal(t, c.want[at], got, "%v", at)
			}
		})
	}
}

// A key that a tenant names for a person gives no permission at the platform or in
// another tenant. No tenant administrator can become that person.
func TestKeyOfTenantProvesNobodyElsewhere(t *testing.T) {
	root, eve := newPerson(t), newPerson(t)
	at := func(b *schema.RoleBinding, tenant string) *schema.RoleBinding {
		b.Key = schema.Key{Kind: schema.KindRoleBinding, Tenant: tenant, Name: "roles"}
		return b
	}
	rules := authority.Rules{Base: &schema.Desired{
		Platform: &schema.Platform{Roles: map[string]*schema.RoleBinding{
			"people": at(binding(schema.RoleMember{Login: "root", Role: "platform_superadmin", SigningKeys: []string{root.line}}), ""),
		}},
		Tenants: map[string]*schema.TenantEstate{
			"biology": {Roles: at(binding(
				schema.RoleMember{Login: "root", Role: "tenant_admin", SigningKeys: []string{eve.line}},
			), "biology")},
			"physics": {Roles: at(binding(
				schema.RoleMember{Login: "root", Role: "tenant_admin", SigningKeys: []string{root.line}},
			), "physics")},
		},
	}}
	ring := signature.Keys(rules)
	may := func(p person, scope authority.Scope) bool {
		s, err := ring.Signer([]byte("payload"), p.sign(t, "payload"), time.Now())
		require.NoError(t, err)
		a, _ := s.Actor(scope) // the zero actor after an error
		return authority.May(rules, a, authority.RolesWrite, scope).Allowed
	}
	require.True(t, may(root, authority.Scope{Tenant: "physics"}))
	require.False(t, may(eve, authority.Scope{Tenant: "physics"}))
	require.True(t, may(root, authority.Scope{}))
	require.False(t, may(eve, authority.Scope{}))
	require.True(t, may(eve, authority.Scope{Tenant: "biology"}), "there it is biology's to say")
}

func TestCheckKeyRefusesUnusableKeys(t *testing.T) {
	p := newPerson(t)
	require.NoError(t, signature.CheckKey(p.line))
	require.EqualError(t, signature.CheckKey(strings.Replace(p.line, "ssh-ed25519", "ssh-rsa", 1)),
		`the line begins with "ssh-rsa", and its key is of type ssh-ed25519`)
	entity, err := openpgp.NewEntity("Anna", "", "anna@example.org", nil)
	require.NoError(t, err)
	armored := func(kind string, write ...func(io.Writer) error) string {
		var b strings.Builder
		w, err := armor.Encode(&b, kind, nil)
		require.NoError(t, err)
		for _, f := range write {
			require.NoError(t, f(w))
		}
		require.NoError(t, w.Close())
		return b.String()
	}
	private := func(w io.Writer) error { return entity.SerializePrivate(w, nil) }
	require.NoError(t, signature.CheckKey(armored("PGP PUBLIC KEY BLOCK", entity.Serialize)))
	for text, why := range map[string]string{
		"":                                       "not an SSH public key",
		"ssh-ed25519":                            "not an SSH public key",
		"ssh-ed25519 AAAA":                       "not an SSH public key",
		"ssh-rsa " + strings.Fields(p.line)[1]:   "its key is of type ssh-ed25519",
		"-----BEGIN PGP PUBLIC KEY BLOCK-----\n": "not an armored OpenPGP public key",
		armored("PGP PUBLIC KEY BLOCK", entity.Serialize,
			entity.Serialize): "holds 2",
		armored("PGP PUBLIC KEY BLOCK", private):                     "private key",
		armored("PGP PUBLIC KEY BLOCK", entity.PrimaryKey.Serialize): "not an armored OpenPGP public key",
		"sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAABHNzaDo=": "not accepted",
	} {
		require.ErrorContains(t, signature.CheckKey(text), why, text)
	}
}

// A signature that only some programs read as one counts as no signature.
func TestSplitRefusesAmbiguousSignatures(t *testing.T) {
	const head = "tree 1\nparent 2\nauthor A <a> 1 +0000\ncommitter C <c> 2 +0000\n"
	const sig = "gpgsig -----BEGIN\n  indented\n \n -----END\n"
	for name, c := range map[string]struct{ raw, payload, sig, err string }{
		"unsigned": {raw: head + "\nSubject\n"},
		"signed":   {raw: head + sig + "\nSubject\n", payload: head + "\nSubject\n", sig: "-----BEGIN\n indented\n\n-----END\n"},
		"header after": {raw: head + sig + "encoding X\n\nS", payload: head + "encoding X\n\nS",
			sig: "-----BEGIN\n indented\n\n-----END\n"},
		"folded header": {raw: head + "mergetag a\n b\n \n gpgsig c\n" + sig + "\nS",
			payload: head + "mergetag a\n b\n \n gpgsig c\n\nS", sig: "-----BEGIN\n indented\n\n-----END\n"},
		"root commit": {raw: "tree 1\nauthor A\ncommitter C\n" + sig + "\nS", payload: "tree 1\nauthor A\ncommitter C\n\nS",
			sig: "-----BEGIN\n indented\n\n-----END\n"},
		"in the message only": {raw: head + "\ngpgsig x\n y\n"},
		"no message":          {raw: head + sig + "\n", payload: head + "\n", sig: "-----BEGIN\n indented\n\n-----END\n"},
		"two":                 {raw: head + sig + sig + "\nS", err: "two signatures"},
		"sha256 beside":       {raw: head + sig + "gpgsig-sha256 x\n y\n\nS", err: "no signature covers"},
		"sha256 alone":        {raw: head + "gpgsig-sha256 x\n y\n\nS", err: "no signature covers"},
		"without a space":     {raw: head + "gpgsig\n x\n\nS", err: "no signature covers"},
		"empty":               {raw: head + "gpgsig ", err: "is empty"},
		"second tree":         {raw: head + sig + "tree 3\n\nS", err: "out of order"},
		"second author":       {raw: "tree 1\nauthor A\nauthor B\ncommitter C\n" + sig + "\nS", err: "out of order"},
		"late parent":         {raw: "tree 1\nauthor A\ncommitter C\nparent 2\n" + sig + "\nS", err: "out of order"},
		"no committer":        {raw: "tree 1\nauthor A\n" + sig + "\nS", err: "out of order"},
		"signature first":     {raw: "tree 1\n" + sig + "author A\ncommitter C\n\nS", err: "out of order"},
		"folded author":       {raw: "tree 1\nauthor A\n B\ncommitter C\n" + sig + "\nS", err: "out of order"},
		"NUL":                 {raw: head + sig + "\nS\x00hidden", err: "NUL"},
		"endless":             {raw: head + sig + strings.Repeat(" x\n", 1<<17) + "\nS", err: "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			payload, sig, err := signature.Split([]byte(c.raw))
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				require.Nil(t, sig)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.sig, string(sig))
			if c.sig == "" {
				require.Nil(t, payload)
				return
			}
			require.Equal(t, c.payload, string(payload))
		})
	}
}

// Any bytes are split without loss or refused, and prove nobody.
func TestHostileBytesProveNobody(t *testing.T) {
	p := newPerson(t)
	ring := signature.Keys(people(map[string]string{"anna": p.line}))
	line := rapid.OneOf(
		rapid.SampledFrom([]string{"tree 1\n", "parent 2\n", "author A\n", "committer C\n", "gpgsig -----BEGIN SSH SIGNATURE-----\n",
			"gpgsig -----BEGIN PGP SIGNATURE-----\n", " -----END SSH SIGNATURE-----\n", " \n", "\n", "gpgsig", "\r\n", "encoding x\n",
			" U1NIU0lH\n", " iQ==\n"}),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 8), func(b []byte) string { return string(b) }),
	)
	rapid.Check(t, func(t *rapid.T) {
		raw := strings.Join(rapid.SliceOfN(line, 0, 12).Draw(t, "lines"), "")
		if rapid.Bool().Draw(t, "begins well") {
			raw = "tree 1\nauthor A\ncommitter C\n" + raw
		}
		payload, sig, err := signature.Split([]byte(raw))
		if err != nil || sig == nil {
			require.Nil(t, payload)
			return
		}
		end := ""
		if bytes.HasSuffix(sig, []byte("\n")) {
			end = "\n"
		}
		folded := bytes.ReplaceAll(bytes.TrimSuffix(sig, []byte("\n")), []byte("\n"), []byte("\n "))
		require.Len(t, raw, len(payload)+len("gpgsig ")+len(folded)+len(end))
		_, err = ring.Signer(payload, sig, time.Now())
		require.Error(t, err)
	})
}
