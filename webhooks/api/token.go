package api

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/crypto/ssh"

	"berth/schema"
)

const (
	// MaxTokenLife is the longest a service account's token may live.
	MaxTokenLife = time.Hour
	// clockSkew is by how much two clocks may differ.
	clockSkew = 30 * time.Second
	// maxToken bounds a token's bytes. One of ours has about 400; one of an identity provider may
	// list the groups of its person.
	maxToken = 16 << 10
	maxJTI   = 128
)

// errToken is the only answer to an invalid token; the cause is logged.
var errToken = errors.New("the token is not valid")

// Issuer is the name of a service account in its tokens:
// "<tenant>.<project>/<name>", or "<tenant>/<name>" for a tenant's.
func Issuer(account schema.Key) string {
	if account.Project != "" {
		return account.ProjectID() + "/" + account.Name
	}
	return account.Tenant + "/" + account.Name
}

// ParseIssuer returns the service account of a name that Issuer made.
func ParseIssuer(s string) (schema.Key, error) {
	owner, name, _ := strings.Cut(s, "/")
	tenant, project, inProject := strings.Cut(owner, ".")
	for _, part := range []string{tenant, name} {
		if !schema.ValidName(part) {
			return schema.Key{}, fmt.Errorf("%.100q is not a service account: write TENANT.PROJECT/NAME, or TENANT/NAME", s)
		}
	}
	if inProject && !schema.ValidName(project) {
		return schema.Key{}, fmt.Errorf("%.100q is not a service account: write TENANT.PROJECT/NAME, or TENANT/NAME", s)
	}
	return schema.Key{Kind: schema.KindServiceAccount, Tenant: tenant, Project: project, Name: name}, nil
}

// signingMethod is the only algorithm for a public key, so that no token chooses one; nil if
// the key cannot sign tokens.
func signingMethod(key crypto.PublicKey) jwt.SigningMethod {
	switch k := key.(type) {
	case ed25519.PublicKey:
		return jwt.SigningMethodEdDSA
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P256() {
			return jwt.SigningMethodES256
		}
	}
	return nil
}

// Mint makes a token of a service account for one estate, the audience, valid for ttl
// from now. key is the private half of the account's public key keyID: Ed25519, or
// ECDSA on P-256.
func Mint(account schema.Key, keyID string, key crypto.Signer, audience string, ttl time.Duration, now time.Time) (string, error) {
	if ttl <= 0 || ttl > MaxTokenLife {
		return "", fmt.Errorf("the lifetime of a token must be more than 0 and at most %s, not %s", MaxTokenLife, ttl)
	}
	m := signingMethod(key.Public())
	if m == nil {
		return "", errors.New("a token is signed with an ed25519 or an ecdsa-sha2-nistp256 key: make one with ssh-keygen -t ed25519")
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	now = now.Truncate(time.Second)
	t := jwt.NewWithClaims(m, jwt.RegisteredClaims{
		Issuer: Issuer(account), Audience: jwt.ClaimStrings{audience}, ID: hex.EncodeToString(id[:]),
		IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(ttl)),
	})
	t.Header["kid"] = keyID
	return t.SignedString(key)
}

// Verify returns the service account in force of a token. The error is for the log: it
// holds only the names that the token claims, quoted.
func Verify(token, audience string, d *schema.Desired, now time.Time) (*schema.ServiceAccount, error) {
	if len(token) > maxToken {
		return nil, fmt.Errorf("longer than %d bytes", maxToken)
	}
	var account *schema.ServiceAccount
	var noKey error // the parser puts it behind words of its own
	claims := &jwt.RegisteredClaims{}
	parser := jwt.NewParser(
		jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg(), jwt.SigningMethodES256.Alg()}),
		jwt.WithAudience(audience), jwt.WithLeeway(clockSkew), jwt.WithTimeFunc(func() time.Time { return now }),
		jwt.WithIssuedAt(), jwt.WithNotBeforeRequired(), jwt.WithExpirationRequired(), jwt.WithStrictDecoding(),
	)
	_, err := parser.ParseWithClaims(token, claims, func(t *jwt.Token) (key any, err error) {
		defer func() { noKey = err }()
		// Other header fields (crit, b64, jku, …) are not supported.
		for name := range t.Header {
			if name != "alg" && name != "kid" && name != "typ" {
				return nil, errors.New("a header field besides alg, kid and typ")
			}
		}
		kid, _ := t.Header["kid"].(string)
		name, err := ParseIssuer(claims.Issuer)
		if err != nil {
			return nil, err
		}
		if account = serviceAccount(d, name); account == nil {
			return nil, fmt.Errorf("no service account %s is in force", claims.Issuer)
		}
		return keyOf(account, claims.Issuer, kid, t.Method)
	})
	switch {
	case noKey != nil:
		return nil, noKey
	case errors.Is(err, jwt.ErrTokenSignatureInvalid):
		return nil, errors.New("its signature does not fit the key that it names: the token was changed, or signed by another key")
	case err != nil:
		return nil, err
	}
	if err := checkClaims(claims); err != nil {
		return nil, err
	}
	return account, nil
}

// checkClaims checks what the parser does not.
func checkClaims(claims *jwt.RegisteredClaims) error {
	switch {
	case len(claims.Audience) != 1: // a second audience would open another estate too
		return errors.New("for more than one audience")
	case claims.IssuedAt == nil || claims.ID == "" || len(claims.ID) > maxJTI:
		return errors.New("iat or jti is missing or too long")
	}
	if life := claims.ExpiresAt.Sub(claims.IssuedAt.Time); life <= 0 || life > MaxTokenLife {
		return fmt.Errorf("its lifetime is %s; it must be more than 0 and at most %s", life, MaxTokenLife)
	}
	return nil
}

// keyOf returns the public key of a service account that a token names; it must sign with
// the token's method.
func keyOf(account *schema.ServiceAccount, issuer, kid string, signed jwt.SigningMethod) (crypto.PublicKey, error) {
	if account.Suspend {
		return nil, fmt.Errorf("service account %s is suspended", issuer)
	}
	i := slices.IndexFunc(account.Spec.PublicKeys, func(k schema.PublicKey) bool { return k.ID == kid })
	if i < 0 {
		return nil, fmt.Errorf("service account %s has no key %.40q", issuer, kid)
	}
	key, err := publicKey(account.Spec.PublicKeys[i].Key)
	if err != nil {
		return nil, err
	}
	if m := signingMethod(key); m == nil || m.Alg() != signed.Alg() {
		return nil, fmt.Errorf("key %s of %s does not sign with %.10q", kid, issuer, signed.Alg())
	}
	return key, nil
}

func serviceAccount(d *schema.Desired, key schema.Key) *schema.ServiceAccount {
	t := d.Tenants[key.Tenant]
	if t == nil || t.Tenant == nil {
		return nil
	}
	if key.Project == "" {
		return t.ServiceAccounts[key.Name]
	}
	if p := t.Projects[key.Project]; p != nil && p.Project != nil {
		return p.ServiceAccounts[key.Name]
	}
	return nil
}

// publicKey reads a key as in an authorized_keys file.
func publicKey(line string) (crypto.PublicKey, error) {
	k, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
	if err != nil {
		return nil, errors.New("the public key in force is malformed")
	}
	if c, ok := k.(ssh.CryptoPublicKey); ok {
		return c.CryptoPublicKey(), nil
	}
	return nil, errors.New("tokens cannot be verified with a key of this type: use ssh-ed25519")
}
