package signature

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	openpgp "github.com/ProtonMail/go-crypto/openpgp/v2"
	"golang.org/x/crypto/ssh"

	"berth/schema"
	"berth/schema/authority"
)

// Ring maps the keys that an estate declares to their owners. It is safe for concurrent
// use.
//
// Public keys are public, and every tenant writes its own role bindings. Therefore a
// claim on a key counts only in the scope that makes it. A tenant that claims the key of
// a person elsewhere neither becomes that person nor takes the key away. With
// Actor.SigningKey, package authority ensures that a key proves a person only for roles
// given where the key is declared.
type Ring struct {
	ssh map[string][]claim // by the binary key
	pgp func() []pgpClaim  // parsed on first use, because parsing is slow
}

// claim assigns a key to an owner in a scope.
type claim struct {
	login   string // for a person; otherwise ""
	text    string // the person's key, as written in the document
	account schema.Key
	scope   authority.Scope
	first   bool // from berth.yaml, before any role binding
}

type pgpClaim struct {
	claim
	key *openpgp.Entity
}

// Keys collects the keys that are valid by rules: those of people in role bindings,
// those of service accounts, and the administrators' keys, which belong to the first
// administrator. Suspended documents declare no keys. Unreadable keys belong to nobody;
// CheckKey returns the reason.
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
	for _, k := range rules.AdministratorKeys {
		if len(rules.Administrators) > 0 {
			declare(k, claim{login: rules.Administrators[0], text: k, first: true})
		}
	}
	for _, k := range declaredKeys(rules.Base.OrEmpty()) {
		if !k.header.Suspend && (k.claim.login != "" || !k.claim.account.IsZero()) {
			declare(k.text, k.claim)
		}
	}
	r.pgp = sync.OnceValue(func() []pgpClaim { return parseClaims(armored, owners) })
	return r
}

// parseClaims returns the readable keys of armored, each with its owner.
func parseClaims(armored []string, owners []claim) (out []pgpClaim) {
	for i, text := range armored {
		if key, err := parsePGP(text); err == nil {
			out = append(out, pgpClaim{owners[i], key})
		}
	}
	return out
}

// Signer is the signer of a commit: a key, and the claims on it.
type Signer struct {
	Key    string // fingerprint, such as "SHA256:…" or "OpenPGP 9A3F…"
	claims []claim
}

// Signer verifies the signature of a commit; payload and sig come from Split. The error
// is a readable reason why the commit proves nobody.
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

// verifyPGP finds the key of the ring that made a signature. An OpenPGP signature does
// not contain its key.
func (r *Ring) verifyPGP(payload, sig []byte, now time.Time) (Signer, error) {
	p, raw, err := parsePGPSignature(sig)
	if err != nil {
		return Signer{}, err
	}
	s := Signer{Key: fmt.Sprintf("OpenPGP %016X", *p.IssuerKeyId)}
	var failed error // nil: no claim on such a key
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

// Actor returns the signer in a scope. The widest claims on the key count. At one level
// a person has priority over a service account: a user with permission to write accounts
// must not take a key from its owner. Two persons, or two accounts, at one level prove
// nobody. The error is a readable reason why the key proves nobody there.
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
			return authority.Actor{}, fmt.Errorf("the signing key %s is claimed by two in %s: it is nobody's until one of them has another",
				s.Key, level.scope)
		}
		if who != nil {
			return authority.Actor{Login: who.login, ServiceAccount: who.account, SigningKey: who.text, Proof: authority.ProofSignature},
				nil
		}
	}
	return authority.Actor{}, fmt.Errorf("the signing key %s is nobody's in %s", s.Key, at)
}
