package signature_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/examples/need"
	"berth/schema"
	"berth/schema/authority"
	"berth/schema/signature"
)

// desk is a local checkout: a Git repository, ssh-keygen and gpg, isolated from the
// configuration of this machine.
type desk struct {
	t    *testing.T
	dir  string
	home string // short, because gpg's agent needs a short socket path
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	home, err := os.MkdirTemp("", "desk")
	require.NoError(t, err)
	d := &desk{t: t, dir: t.TempDir(), home: home}
	t.Cleanup(func() {
		_ = d.command("gpgconf", "--kill", "all").Run() // an agent exists only after use of gpg
		require.NoError(t, os.RemoveAll(home))
	})
	d.git("init", "-q", "-b", "main")
	return d
}

func (d *desk) command(name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(d.t.Context(), name, args...)
	if d.t.Context().Err() != nil { // during clean-up
		c = exec.Command(name, args...)
	}
	c.Dir = d.dir
	c.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + d.home, "GNUPGHOME=" + d.home, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"LC_ALL=C.UTF-8",
		"GIT_AUTHOR_NAME=Anna", "GIT_AUTHOR_EMAIL=anna@example.org", "GIT_COMMITTER_NAME=Anna", "GIT_COMMITTER_EMAIL=anna@example.org",
	}
	return c
}

func (d *desk) run(input []byte, name string, args ...string) string {
	d.t.Helper()
	c := d.command(name, args...)
	c.Stdin = bytes.NewReader(input)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	require.NoError(d.t, err, "%s %q: %s", name, args, stderr.String())
	return string(out)
}

func (d *desk) git(args ...string) string { d.t.Helper(); return d.run(nil, "git", args...) }

// sshKey creates a key and returns its file and its public line without comment.
func (d *desk) sshKey(name string, args ...string) (file, line string) {
	d.t.Helper()
	file = filepath.Join(d.home, name)
	d.run(nil, "ssh-keygen", append([]string{"-q", "-N", "", "-C", "", "-f", file}, args...)...)
	public, err := os.ReadFile(file + ".pub")
	require.NoError(d.t, err)
	return file, strings.TrimSpace(string(public))
}

// needsGPG skips a test where gpg is not installed.
func needsGPG(t *testing.T) {
	t.Helper()
	need.Programs(t, "gpg")
}

// signSSH sets the SSH key that signs later commits; signPGP sets an OpenPGP key.
func (d *desk) signSSH(file string) {
	d.git("config", "gpg.format", "ssh")
	d.git("config", "user.signingKey", file)
}

func (d *desk) signPGP(id string) {
	d.git("config", "gpg.format", "openpgp")
	d.git("config", "user.signingKey", id)
}

// pgpKey creates a gpg key and returns its id and its armored public half.
func (d *desk) pgpKey(name, algorithm, expire string) (id, armored string) {
	d.t.Helper()
	d.run(nil, "gpg", "--batch", "--quiet", "--passphrase", "", "--quick-gen-key", name, algorithm, "sign", expire)
	for line := range strings.Lines(d.run(nil, "gpg", "--batch", "--with-colons", "--list-keys", name)) {
		if f := strings.Split(line, ":"); f[0] == "fpr" {
			id = f[9]
		}
	}
	return id, d.export(id)
}

func (d *desk) export(id string) string {
	return d.run(nil, "gpg", "--batch", "--armor", "--export", id)
}

// commit creates a signed commit and returns its bytes.
func (d *desk) commit(message string, args ...string) []byte {
	d.t.Helper()
	d.git(append([]string{"commit", "-q", "--allow-empty", "-S", "-m", message}, args...)...)
	return []byte(d.git("cat-file", "commit", "HEAD"))
}

// people returns an estate in which each login has a key at the platform.
func people(keys map[string]string) authority.Rules {
	b := &schema.RoleBinding{Header: schema.Header{Key: schema.Key{Kind: schema.KindRoleBinding, Name: "people"}}}
	for login, key := range keys {
		b.Spec.Members = append(b.Spec.Members, schema.RoleMember{Login: login, Role: "platform_viewer", SigningKeys: []string{key}})
	}
	return authority.Rules{Base: &schema.Desired{Platform: &schema.Platform{Roles: map[string]*schema.RoleBinding{"people": b}}}}
}

// signer returns the person at the platform that a raw commit proves.
func signer(r *signature.Ring, raw []byte, now time.Time) (string, error) {
	payload, sig, err := signature.Split(raw)
	if err != nil {
		return "", err
	}
	s, err := r.Signer(payload, sig, now)
	if err != nil {
		return "", err
	}
	a, err := s.Actor(authority.Scope{})
	return a.Login, err
}

// A signature by Git is accepted for each kind of key, for plain commits, merges
// and commits with extra headers. No byte of the commit may change.
func TestGitSignaturesAreAccepted(t *testing.T) {
	d := newDesk(t)
	kinds := map[string]func() string{ // each creates a key, configures it for signing, and returns its public half
		"ed25519": func() string { f, l := d.sshKey("ed", "-t", "ed25519"); d.signSSH(f); return l },
		"ecdsa":   func() string { f, l := d.sshKey("ec", "-t", "ecdsa", "-b", "384"); d.signSSH(f); return l },
		"rsa":     func() string { f, l := d.sshKey("rsa", "-t", "rsa", "-b", "2048"); d.signSSH(f); return l },
		"gpg ed25519": func() string {
			id, k := d.pgpKey("anna@example.org", "ed25519", "1y")
			d.signPGP(id)
			return k
		},
		"gpg rsa": func() string {
			id, k := d.pgpKey("anna@work.example.org", "rsa2048", "0")
			d.signPGP(id)
			return k
		},
		"gpg nistp256": func() string {
			id, k := d.pgpKey("anna@lab.example.org", "nistp256", "0")
			d.signPGP(id)
			return k
		},
	}
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			if strings.HasPrefix(name, "gpg") {
				needsGPG(t)
			}
			key := kind()
			require.NoError(t, signature.CheckKey(key))
			ring := signature.Keys(people(map[string]string{"anna": key}))
			commits := map[string][]byte{
				"plain":    d.commit("One\n\nwith a body\n\nBreak-Glass: no\n"),
				"crlf":     d.commit("Two\r\n\r\nlines end as elsewhere\r\n", "--cleanup=verbatim"),
				"no text":  d.commit("", "--allow-empty-message"),
				"encoding": nil, "merge": nil, "merge of a tag": nil,
			}
			d.git("config", "i18n.commitEncoding", "ISO-8859-1")
			commits["encoding"] = d.commit("K\xe4se")
			d.git("config", "--unset", "i18n.commitEncoding")
			for _, of := range []string{"merge", "merge of a tag"} {
				d.git("checkout", "-q", "-b", "side", "HEAD^")
				d.commit("beside")
				target := "side"
				if of != "merge" {
					target = "tagged"
					d.git("tag", "-s", "-m", "a tag", target)
				}
				d.git("checkout", "-q", "main")
				d.git("merge", "-q", "--no-ff", "-S", "-m", "merge", target)
				commits[of] = []byte(d.git("cat-file", "commit", "HEAD"))
				d.git("branch", "-q", "-D", "side")
			}
			d.git("tag", "-d", "tagged")
			require.Contains(t, string(commits["encoding"]), "\nencoding ISO-8859-1\n")
			require.Contains(t, string(commits["merge of a tag"]), "\nmergetag object ")
			for what, raw := range commits {
				who, err := signer(ring, raw, time.Now())
				require.NoError(t, err, what)
				require.Equal(t, "anna", who, what)
				payload, sig, err := signature.Split(raw)
				require.NoError(t, err)

				// The signature of another commit does not verify.
				_, other, err := signature.Split(d.commit("another"))
				require.NoError(t, err)
				_, err = ring.Signer(payload, other, time.Now())
				require.ErrorContains(t, err, "does not hold", what)
				_, err = ring.Signer(append([]byte{'\n'}, payload...), sig, time.Now())
				require.ErrorContains(t, err, "does not hold", what)
			}

			// A commit with any changed byte proves nobody, except for bytes such as the
			// armor's own line breaks.
			raw := commits["plain"]
			payload, sig, err := signature.Split(raw)
			require.NoError(t, err)
			for i := range payload {
				changed := bytes.Clone(payload)
				changed[i] ^= 1
				_, err := ring.Signer(changed, sig, time.Now())
				require.Error(t, err, "byte %d of what is signed", i)
			}
			// A change of the signature never proves another person.
			for i := range sig {
				changed := bytes.Clone(sig)
				changed[i] ^= 1
				if s, err := ring.Signer(payload, changed, time.Now()); err == nil {
					a, err := s.Actor(authority.Scope{})
					require.NoError(t, err)
					require.Equal(t, "anna", a.Login)
				}
			}
		})
	}
}

func refused(t *testing.T, ring *signature.Ring, payload, sig []byte, now time.Time, why string) {
	t.Helper()
	s, err := ring.Signer(payload, sig, now)
	if err == nil {
		_, err = s.Actor(authority.Scope{})
	}
	require.ErrorContains(t, err, why)
}

// These signatures prove nobody, although Git or its tools made them.
func TestInvalidSignaturesAreRefused(t *testing.T) {
	d := newDesk(t)
	anna, annaKey := d.sshKey("anna", "-t", "ed25519")
	_, other := d.sshKey("other", "-t", "ed25519")
	short, shortKey := d.sshKey("short", "-t", "rsa", "-b", "1024")
	d.signSSH(anna)
	raw := d.commit("One")
	payload, sig, err := signature.Split(raw)
	require.NoError(t, err)

	ring := signature.Keys(people(map[string]string{"anna": annaKey}))
	require.Error(t, signature.CheckKey(shortKey))

	refused(t, signature.Keys(people(map[string]string{"anna": other})), payload, sig, time.Now(), "nobody in the estate has")
	refused(t, signature.Keys(authority.Rules{}), payload, sig, time.Now(), "nobody in the estate has")
	refused(t, ring, payload, nil, time.Now(), "not signed")
	refused(t, ring, payload, []byte("trust me"), time.Now(), "neither SSH's nor OpenPGP's")
	refused(t, ring, payload, append(bytes.Clone(sig), sig...), time.Now(), "cannot be read")

	d.signSSH(short)
	p, s, err := signature.Split(d.commit("by a short key"))
	require.NoError(t, err)
	refused(t, signature.Keys(people(map[string]string{"anna": shortKey})), p, s, time.Now(), "too short")

	// ssh-keygen signs a commit's bytes for another purpose, and with SHA-256.
	sign := func(args ...string) []byte {
		return []byte(d.run(payload, "ssh-keygen", append([]string{"-q", "-Y", "sign", "-f", anna}, args...)...))
	}
	refused(t, ring, payload, sign("-n", "file"), time.Now(), "does not hold")
	refused(t, ring, payload, sign("-n", "git2"), time.Now(), "does not hold")
	_, err = ring.Signer(payload, sign("-n", "git", "-O", "hashalg=sha256"), time.Now())
	require.NoError(t, err)

	// A certificate is not the key that it contains.
	ca, _ := d.sshKey("ca", "-t", "ed25519")
	d.run(nil, "ssh-keygen", "-q", "-s", ca, "-I", "anna", "-n", "anna", anna+".pub")
	signed := []byte(d.run(payload, "ssh-keygen", "-q", "-Y", "sign", "-f", anna+"-cert.pub", "-n", "git"))
	refused(t, ring, payload, signed, time.Now(), "are not accepted")

}

// OpenPGP signatures of text, double signatures, and signatures by a weak hash or
// by an expired or revoked key prove nobody.
func TestInvalidOpenPGPSignaturesAreRefused(t *testing.T) {
	needsGPG(t)
	d := newDesk(t)
	payload := []byte("what a commit is\n")
	id, key := d.pgpKey("anna@example.org", "rsa2048", "10d")
	pgp := signature.Keys(people(map[string]string{"anna": key}))
	gpg := func(args ...string) []byte {
		return []byte(d.run(payload, "gpg", append([]string{"--batch", "--quiet", "--armor", "-u", id, "--detach-sign"}, args...)...))
	}
	_, err := pgp.Signer(payload, gpg(), time.Now())
	require.NoError(t, err)
	refused(t, pgp, payload, gpg("--textmode"), time.Now(), "not of the commit's bytes")
	refused(t, pgp, payload, gpg("--digest-algo", "SHA1", "--allow-weak-digest-algos"), time.Now(), "insecure")
	refused(t, pgp, payload, gpg("--default-sig-expire", "seconds=10"), time.Now().Add(time.Hour), "expired")
	refused(t, pgp, payload, gpg(), time.Now().Add(30*24*time.Hour), "not valid any more")
	refused(t, pgp, payload, gpg(), time.Now().Add(-time.Hour), "does not hold") // signature from the future
	_, err = pgp.Signer(payload, gpg(), time.Now().Add(-time.Minute))            // signer's clock within maxSkew
	require.NoError(t, err)
	refused(t, signature.Keys(people(nil)), payload, gpg(), time.Now(), "nobody in the estate has")
	two, _ := d.pgpKey("anna@work.example.org", "rsa2048", "0")
	refused(t, pgp, payload, gpg("-u", two), time.Now(), "not one signature")

	good := gpg()
	revocation, err := os.ReadFile(filepath.Join(d.home, "openpgp-revocs.d", id+".rev"))
	require.NoError(t, err)
	d.run(bytes.ReplaceAll(revocation, []byte("\n:-----"), []byte("\n-----")), "gpg", "--batch", "--quiet", "--import")
	refused(t, signature.Keys(people(map[string]string{"anna": d.export(id)})), payload, good, time.Now(), "revoked")
}
