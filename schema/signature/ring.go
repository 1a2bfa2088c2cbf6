package signature

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	openpgp "github.com/ProtonMail/go-crypto/openpgp/v2"
	"golang.org/x/crypto/ssh"

	"berth/schema"
	"berth/schema/authority"
)

// Ring is whose the keys are that an estate declares. It is safe for concurrent
// use.
//
// Public keys are public, and every tenant writes role bindings of its own. So
// what a key is said to be counts only where that is said: who claims a key of
// somebody elsewhere neither becomes them nor takes it from them. That a key
// proves a person only for roles given where it is named is package authority's
// to see to, by Actor.SigningKey.
type Ring struct {
	ssh map[string][]claim // by the key itself
	pgp func() []pgpClaim  // read when first needed: it is slow
}

// claim says that a key is somebody's, as far as scope reaches.
type claim struct {
	login   string // of a person; else ""
	text    string // the person's key, as it is spelt there
	account schema.Key
	scope   authority.Scope
	first   bool // by berth.yaml, before any role binding
}

type pgpClaim struct {
	claim
	key *openpgp.Entity
}

// Keys collects the keys that count by rules: those of people in role bindings,
// those of service accounts, and the administrators', which are taken to be the
// first one's. What is suspended declares none, and a key that cannot be read is
// nobody's: CheckKey tells why.
func Keys(rules authority.Rules) *Ring {
	r := &Ring{ssh: map[string][]claim{}}
	var armored []string
	var owners []claim
	declare := func(text string, c claim) {
		if strings.HasPrefix(text, armorKey) {
			armored, owners = append(armored, text), append(owners, c)
		} else if blob, err := sshBlob(text); err == nil {
			r.ssh[string(blob)] = append(r.ssh[string(blob)], c)
		}
	}
	binding := func(b *schema.RoleBinding, scope authority.Scope) {
		if b == nil || b.Suspend {
			return
		}
		for _, m := range b.Spec.Members {
			for _, k := range m.SigningKeys {
				if m.Login != "" {
					declare(k, claim{login: m.Login, text: k, scope: scope})
				}
			}
		}
	}
	accounts := func(all map[string]*schema.ServiceAccount, scope authority.Scope) {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			a := all[name]
			if a.Suspend {
				continue
			}
			for _, k := range a.Spec.PublicKeys {
				declare(k.Key, claim{account: a.Key, scope: scope})
			}
		}
	}
	for _, k := range rules.AdministratorKeys {
		if len(rules.Administrators) > 0 {
			declare(k, claim{login: rules.Administrators[0], text: k, first: true})
		}
	}
	if d := rules.Base; d != nil {
		for _, name := range slices.Sorted(maps.Keys(d.Platform.Roles)) {
			binding(d.Platform.Roles[name], authority.Scope{})
		}
		for _, tenant := range slices.Sorted(maps.Keys(d.Tenants)) {
			t := d.Tenants[tenant]
			binding(t.Roles, authority.Scope{Tenant: tenant})
			accounts(t.ServiceAccounts, authority.Scope{Tenant: tenant})
			for _, project := range slices.Sorted(maps.Keys(t.Projects)) {
				p, at := t.Projects[project], authority.Scope{Tenant: tenant, Project: project}
				binding(p.Roles, at)
				accounts(p.ServiceAccounts, at)
			}
		}
	}
	r.pgp = sync.OnceValue(func() (out []pgpClaim) {
		for i, text := range armored {
			if key, err := parsePGP(text); err == nil {
				out = append(out, pgpClaim{owners[i], key})
			}
		}
		return out
	})
	return r
}

// Signer is whoever signed a commit: a key, and who says that it is theirs.
type Signer struct {
	Key    string // its fingerprint, such as "SHA256:…" or "OpenPGP 9A3F…"
	claims []claim
}

// Signer verifies a commit's signature; payload and sig are as Split gives
// them. The error says, for people, why the commit proves nobody.
func (r *Ring) Signer(payload, sig []byte, now time.Time) (Signer, error) {
	var s Signer
	switch sig = bytes.TrimSpace(sig); {
	case len(sig) == 0:
		return s, errors.New("the commit is not signed")
	case bytes.HasPrefix(sig, []byte(beginSSH)):
		key, err := verifySSH(payload, sig)
		if err != nil {
			return s, err
		}
		s.Key, s.claims = ssh.FingerprintSHA256(key), r.ssh[string(key.Marshal())]
	case bytes.HasPrefix(sig, []byte(beginPGP)):
		var err error
		if s, err = r.verifyPGP(payload, sig, now); err != nil {
			return s, err
		}
	default:
		return s, errors.New("its signature is neither SSH's nor OpenPGP's")
	}
	if len(s.claims) == 0 {
		return s, fmt.Errorf("it is signed by the key %s, which nobody in the estate has: add it to signing_keys of a role binding", s.Key)
	}
	return s, nil
}

// verifyPGP finds by which of the ring's keys a signature is. Other than SSH's
// it does not bring the key with it.
func (r *Ring) verifyPGP(payload, sig []byte, now time.Time) (Signer, error) {
	p, raw, err := parsePGPSignature(sig)
	if err != nil {
		return Signer{}, err
	}
	s := Signer{Key: fmt.Sprintf("OpenPGP %016X", *p.IssuerKeyId)}
	var failed error // nil: nobody has such a key
	for _, c := range r.pgp() {
		if len((openpgp.EntityList{c.key}).EntitiesById(*p.IssuerKeyId)) == 0 {
			continue
		}
		if err := verifyPGP(c.key, payload, p, raw, now); err != nil {
			failed = err
			continue
		}
		s.Key = "OpenPGP " + strings.ToUpper(hex.EncodeToString(c.key.PrimaryKey.Fingerprint))
		s.claims = append(s.claims, c.claim)
	}
	if len(s.claims) > 0 {
		failed = nil
	}
	return s, failed
}

// Actor is who the signer is where something is to be done. The widest claims
// on the key count; of those at one level a person's go before a service
// account's, as who may write accounts must not take a key from its owner; and
// two persons, or two accounts, who claim it at one level are nobody. The error
// says, for people, why the key proves nobody there.
func (s Signer) Actor(at authority.Scope) (authority.Actor, error) {
	levels := []claim{{first: true}, {}, {scope: authority.Scope{Tenant: at.Tenant}}, {scope: at}}
	for _, level := range levels {
		var who *claim
		two := false
		for i, c := range s.claims {
			switch {
			case c.scope != level.scope || c.first != level.first:
			case who == nil || c.login != "" && who.login == "":
				who, two = &s.claims[i], false
			case c.login == "" && who.login != "":
			case !strings.EqualFold(who.login, c.login) || who.account != c.account:
				two = true
			}
		}
		if two {
			return authority.Actor{}, fmt.Errorf("the signing key %s is claimed by two in %s: it is nobody's until one of them has another", s.Key, level.scope)
		}
		if who != nil {
			return authority.Actor{Login: who.login, ServiceAccount: who.account, SigningKey: who.text, Proof: authority.ProofSignature}, nil
		}
	}
	return authority.Actor{}, fmt.Errorf("the signing key %s is nobody's in %s", s.Key, at)
}
