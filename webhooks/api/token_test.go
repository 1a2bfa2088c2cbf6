package api

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"berth/reconciler/plan"
	"berth/schema"
)

const (
	ciFile  = "tenants/physics/projects/lattice/service-accounts/ci.yaml"
	ciRoles = "tenants/physics/projects/lattice/roles.yaml"
	ciList  = lattice + "/app-instances"
)

// accounts is the campus with test keys for the account physics.lattice/ci and for an
// account of another tenant.
func accounts(t testing.TB, keys map[string]crypto.Signer, head string) map[string]string {
	account := func(name string) string {
		text := "apiVersion: berth/v1\nkind: ServiceAccount\n" + head + "metadata: {name: " + name +
			"}\nspec:\n  display_name: x\n  public_keys:\n"
		for id, k := range keys {
			text += fmt.Sprintf("    - {id: %s, key: %q}\n", id, authorised(t, k.Public()))
		}
		if len(keys) == 0 {
			text = strings.Replace(text, "public_keys:\n", "public_keys: []\n", 1)
		}
		return text + "  scopes: [apps.instance.read]\n  allowed_endpoints: [\"GET /api/v1/projects/{project_id}/app-instances\"]\n"
	}
	return with(campusFiles(t), map[string]string{
		ciFile: account("ci"),
		ciRoles: "apiVersion: berth/v1\nkind: RoleBinding\nmetadata: {name: roles}\nspec:\n  members:\n    - {service_account: ci, role: " +
			"service_account}\n",
		"tenants/biology/projects/proteins/service-accounts/ci.yaml": account("ci"),
	})
}

func ecKey(t testing.TB) *ecdsa.PrivateKey {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return k
}

// forge makes a token without Mint's checks.
type forge struct {
	header map[string]any
	claims jwt.MapClaims
	method jwt.SigningMethod
	key    any
}

func (f forge) token(t testing.TB) string {
	tok := jwt.NewWithClaims(f.method, f.claims)
	maps.Copy(tok.Header, f.header)
	s, err := tok.SignedString(f.key)
	require.NoError(t, err)
	return s
}

func good() forge {
	return forge{
		header: map[string]any{"kid": "current"}, method: jwt.SigningMethodEdDSA, key: testKey(),
		claims: jwt.MapClaims{"iss": "physics.lattice/ci", "aud": "campus", "iat": now.Unix(), "nbf": now.Unix(),
			"exp": now.Add(time.Hour).Unix(), "jti": "one"},
	}
}

func TestTokenIsValidForOneAccountEstateAndHour(t *testing.T) {
	ec := ecKey(t)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	w := newWorld(t, accounts(t, map[string]crypto.Signer{"current": testKey(), "ec": ec}, ""), nil, nil)
	claim := func(name string, v any) func(*forge) {
		return func(f *forge) {
			if f.claims[name] = v; v == nil {
				delete(f.claims, name)
			}
		}
	}
	header := func(name string, v any) func(*forge) { return func(f *forge) { f.header[name] = v } }
	pub, err := ssh.NewPublicKey(testKey().Public())
	require.NoError(t, err)
	for name, c := range map[string]struct {
		change func(*forge)
		status int
	}{
		"as it should be":    {func(*forge) {}, 200},
		"for a shorter time": {claim("exp", now.Add(time.Second).Unix()), 200},
		"the other clock is 29 s ahead": {func(f *forge) {
			f.claims["iat"], f.claims["nbf"] = now.Add(29*time.Second).Unix(), now.Add(29*time.Second).Unix()
		}, 200},
		"expired 29 s ago": {func(f *forge) {
			f.claims["iat"], f.claims["exp"] = now.Add(-time.Minute).Unix(), now.Add(-29*time.Second).Unix()
		}, 200},
		"the ecdsa key":      {func(f *forge) { f.method, f.key, f.header["kid"] = jwt.SigningMethodES256, ec, "ec" }, 200},
		"audience as a list": {claim("aud", []string{"campus"}), 200},

		"expired": {func(f *forge) {
			f.claims["iat"], f.claims["exp"] = now.Add(-time.Hour).Unix(), now.Add(-31*time.Second).Unix()
		}, 401},
		"not yet":               {claim("nbf", now.Add(31*time.Second).Unix()), 401},
		"issued later":          {claim("iat", now.Add(31*time.Second).Unix()), 401},
		"for more than an hour": {claim("exp", now.Add(time.Hour+time.Second).Unix()), 401},
		"forever":               {claim("exp", 1e18), 401},
		"beyond time":           {claim("exp", 1e300), 401},
		"ends before it begins": {func(f *forge) { f.claims["iat"], f.claims["exp"] = now.Unix(), now.Add(-time.Second).Unix() },
			401},
		"no end":                        {claim("exp", nil), 401},
		"no beginning":                  {claim("iat", nil), 401},
		"no nbf":                        {claim("nbf", nil), 401},
		"no id":                         {claim("jti", nil), 401},
		"a huge id":                     {claim("jti", strings.Repeat("x", maxJTI+1)), 401},
		"another estate":                {claim("aud", "harbour"), 401},
		"no audience":                   {claim("aud", nil), 401},
		"two audiences":                 {claim("aud", []string{"campus", "harbour"}), 401},
		"audience in capitals":          {claim("aud", "CAMPUS"), 401},
		"no issuer":                     {claim("iss", nil), 401},
		"an account that is not":        {claim("iss", "physics.lattice/nobody"), 401},
		"a tenant that is not":          {claim("iss", "chemistry/ci"), 401},
		"a path for an issuer":          {claim("iss", "physics.lattice/../collider/ci"), 401},
		"an issuer that is a person":    {claim("iss", anna), 401},
		"no kid":                        {header("kid", ""), 401},
		"kid of no key":                 {header("kid", "former"), 401},
		"kid of another key":            {header("kid", "ec"), 401},
		"kid a number":                  {header("kid", 7), 401},
		"an extension that is critical": {header("crit", []string{"exp"}), 401},
		"a key of its own":              {header("jwk", map[string]string{"kty": "OKP"}), 401},
		"a key from elsewhere":          {header("jku", "https://evil.example/keys"), 401},
		"no algorithm": {func(f *forge) { f.method, f.key = jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType },
			401},
		"the public key as a secret": {func(f *forge) { f.method, f.key = jwt.SigningMethodHS256, pub.Marshal() }, 401},
		"another's key":              {func(f *forge) { f.key = ed25519.NewKeyFromSeed(make([]byte, 32)) }, 401},
		"an RSA key":                 {func(f *forge) { f.method, f.key = jwt.SigningMethodRS256, rsaKey }, 401},
		"ecdsa for an ed25519 key":   {func(f *forge) { f.method, f.key = jwt.SigningMethodES256, ec }, 401},
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			f := good()
			c.change(&f)
			tok := f.token(t)
			w.log.Reset()
			res := w.get(ciList, tok, "X-Correlation-ID", "the-same-one")
			require.Equal(t, c.status, res.StatusCode, w.log.String())
			if c.status == 401 {
				require.Equal(t, codeAuthInvalid, codeOf(t, res))
				require.Contains(t, w.log.String(), "error=", "the operators' log says why")
				for _, part := range strings.Split(tok, ".") {
					if len(part) > 20 {
						require.NotContains(t, w.log.String(), part, "and never the token")
					}
				}
			}
		})
	}
	t.Run("any byte changed", func(t *testing.T) {
		tok := good().token(t)
		for i := range tok {
			for _, c := range []byte{'A', 'B', '.', '='} {
				if changed := tok[:i] + string(c) + tok[i+1:]; changed != tok {
					_, err := Verify(changed, "campus", w.view.Desired, now)
					require.Error(t, err, "byte %d", i)
				}
			}
		}
	})
}

// A token gives access to the endpoints that its account lists, in its own
// project.
func TestTokenEndsWithItsAccountOrKey(t *testing.T) {
	keys := map[string]crypto.Signer{"current": testKey()}
	w := newWorld(t, accounts(t, keys, ""), nil, nil)
	tok := w.token("physics.lattice/ci")
	status := func(target string) int { return w.get(target, tok).StatusCode }

	require.Equal(t, 200, status(ciList))
	require.Equal(t, 403, status(ciList+"/train"), "not listed")
	require.Equal(t, 403, status(lattice+"/app-artifacts"), "not listed")
	require.Equal(t, 403, status(openAPIPath), "not listed")
	require.Equal(t, 404, status("/api/v1/projects/physics.collider/app-instances"), "listed, and another project")
	require.Equal(t, 404, status("/api/v1/projects/biology.genomes/app-instances"), "listed, and another tenant")
	// The account of the same name elsewhere, with the same key, has no role there.
	require.Equal(t, 404, w.get("/api/v1/projects/biology.proteins/app-instances", w.token("biology.proteins/ci")).StatusCode)

	after := func(files map[string]string) int {
		w.view = viewOf(t, files)
		return status(ciList)
	}
	require.Equal(t, 401, after(accounts(t, map[string]crypto.Signer{"next": testKey()}, "")), "the key has another id")
	require.Equal(t, 401, after(accounts(t, map[string]crypto.Signer{"current": ecKey(t)}, "")), "the key was replaced")
	require.Equal(t, 401, after(accounts(t, nil, "")), "the key was taken away")
	require.Equal(t, 401, after(accounts(t, keys, "suspend: true\n")), "the account is suspended")
	files := accounts(t, keys, "")
	files[ciRoles] = "apiVersion: berth/v1\nkind: RoleBinding\nmetadata: {name: roles}\nspec: {members: []}\n"
	require.Equal(t, 404, after(files), "the role was taken")
	delete(files, ciFile)
	files["tenants/physics/projects/lattice/instances/train.yaml"] = strings.Replace(
		files["tenants/physics/projects/lattice/instances/train.yaml"], "  operator_service_account: ci\n", "", 1,
	)
	require.Equal(t, 401, after(files), "the account is gone")
	require.Equal(t, 200, after(accounts(t, keys, "")), "and back")
}

func TestMintRefusesUnsafeTokens(t *testing.T) {
	account := schema.Key{Kind: schema.KindServiceAccount, Tenant: "physics", Project: "lattice", Name: "ci"}
	for _, ttl := range []time.Duration{0, -time.Second, time.Hour + time.Second} {
		_, err := Mint(account, "current", testKey(), "campus", ttl, now)
		require.ErrorContains(t, err, "lifetime")
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	require.NoError(t, err)
	_, err = Mint(account, "current", p384, "campus", time.Minute, now)
	require.ErrorContains(t, err, "ed25519")
	one, err := Mint(account, "current", testKey(), "campus", time.Minute, now)
	require.NoError(t, err)
	two, err := Mint(account, "current", testKey(), "campus", time.Minute, now)
	require.NoError(t, err)
	require.NotEqual(t, one, two, "each has an id of its own")

	for _, k := range []schema.Key{account, {Kind: schema.KindServiceAccount, Tenant: "physics", Name: "department"}} {
		back, err := ParseIssuer(Issuer(k))
		require.NoError(t, err)
		require.Equal(t, k, back)
	}
	for _, s := range []string{"", "/", "physics", "physics/", "/ci", "a.b.c/d", "physics./ci", ".lattice/ci", "Physics/ci", "physics/ci/x",
		"physics.lattice/c i"} {
		_, err := ParseIssuer(s)
		require.Error(t, err, s)
	}
}

// While the view changes.
func TestConcurrentRequests(t *testing.T) {
	v, other := campusView(t), campusView(t)
	other.Units = other.Units.Without(schema.InstanceKey("physics", "lattice", "train"))
	var mu sync.Mutex
	w := worldOf(t, v, []string{anna, petra}, nil)
	w.api.o.Source = func() (plan.View, bool) {
		mu.Lock()
		defer mu.Unlock()
		v, other = other, v
		return v, true
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 40 {
				who := []string{anna, petra, "nobody"}[(i+j)%3]
				r, err := http.NewRequest(http.MethodGet, lattice+"/app-instances?limit=1", nil)
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("Authorization", "Bearer "+personToken(who))
				rec := &recorder{header: http.Header{}}
				w.api.ServeHTTP(rec, r)
				if want := map[bool]int{true: 401, false: 200}[who == "nobody"]; rec.status != want {
					t.Errorf("%s got %d", who, rec.status)
				}
			}
		})
	}
	wg.Wait()
}

type recorder struct {
	header http.Header
	status int
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(status int)      { r.status = status }
func (r *recorder) Write(b []byte) (int, error) { return len(b), nil }

// Only a token that the key signed is valid.
func FuzzToken(f *testing.F) {
	d := desired(f, accounts(f, map[string]crypto.Signer{"current": testKey()}, ""))
	right := good().token(f)
	f.Add(right)
	f.Add("a.b.c")
	f.Add(strings.Repeat(".", 5000))
	f.Add(base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + ".e30.")
	key := testKey().Public().(ed25519.PublicKey)
	f.Fuzz(func(t *testing.T, token string) {
		account, err := Verify(token, "campus", d, now)
		if err != nil {
			if account != nil {
				t.Fatal("an account and an error")
			}
			return
		}
		signed, sig, _ := cutLast(token)
		raw, err := base64.RawURLEncoding.Strict().DecodeString(sig)
		if err != nil || !ed25519.Verify(key, []byte(signed), raw) {
			t.Fatalf("taken without a signature: %q", token)
		}
		var claims struct{ Iss, Aud string }
		body, err := base64.RawURLEncoding.Strict().DecodeString(strings.Split(token, ".")[1])
		if err != nil || json.Unmarshal(body, &claims) != nil || claims.Iss != Issuer(account.Key) {
			t.Fatalf("taken for %s: %q", Issuer(account.Key), token)
		}
	})
}

func cutLast(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, '.')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}
