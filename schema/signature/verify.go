package signature

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	openpgp "github.com/ProtonMail/go-crypto/openpgp/v2"
	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

const (
	beginSSH = "-----BEGIN SSH SIGNATURE-----"
	beginPGP = "-----BEGIN PGP SIGNATURE-----"
	armorKey = "-----BEGIN PGP PUBLIC KEY BLOCK-----"

	// sshNamespace distinguishes signatures of commits from those of files or mail.
	sshNamespace = "git"

	minRSABits = 2048

	// maxSkew limits how far the signer's clock may be ahead.
	maxSkew = 5 * time.Minute
)

// CheckKey returns an error if a declared key proves nothing: it is unreadable, or its
// type or length is not accepted. It does not check expiry.
func CheckKey(text string) error {
	if strings.HasPrefix(text, armorKey) {
		_, err := parsePGP(text)
		return err
	}
	blob, err := sshBlob(text)
	if err != nil {
		return err
	}
	key, err := ssh.ParsePublicKey(blob)
	if err != nil {
		return fmt.Errorf("it is not an SSH public key: %w", err)
	}
	return checkSSH(key)
}

// sshBlob returns the binary key of a line such as "ssh-ed25519 AAAA…".
func sshBlob(line string) ([]byte, error) {
	kind, rest, _ := strings.Cut(line, " ")
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
	if raw, no := base64.StdEncoding.DecodeString(rest); no == nil {
		if other, no := ssh.ParsePublicKey(raw); no == nil && other.Type() != kind {
			return nil, fmt.Errorf("the line begins with %.40q, and its key is of type %s", kind, other.Type())
		}
	}
	if err != nil || rest == "" || key.Type() != kind {
		return nil, errors.New("it is not an SSH public key as in: ssh-ed25519 AAAA…")
	}
	return key.Marshal(), nil
}

// checkSSH returns an error if the type or length of a key is not accepted.
func checkSSH(key ssh.PublicKey) error {
	// A certificate has another type.
	switch key.Type() {
	case ssh.KeyAlgoED25519, ssh.KeyAlgoRSA, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521:
	default:
		return fmt.Errorf("keys of type %.40q are not accepted: use ssh-ed25519", key.Type())
	}
	wrapped, ok := key.(ssh.CryptoPublicKey)
	if !ok {
		return fmt.Errorf("keys of type %q are not accepted: use ssh-ed25519", key.Type())
	}
	switch k := wrapped.CryptoPublicKey().(type) {
	case ed25519.PublicKey, *ecdsa.PublicKey:
		return nil
	case *rsa.PublicKey:
		if k.N.BitLen() < minRSABits {
			return fmt.Errorf("an RSA key of %d bits is too short: use ssh-ed25519, or at least %d bits", k.N.BitLen(), minRSABits)
		}
		return nil
	default:
		return fmt.Errorf("keys of type %q are not accepted: use ssh-ed25519", key.Type())
	}
}

// verifySSH returns the key that signed payload. The caller finds its owner.
func verifySSH(payload, sig []byte) (ssh.PublicKey, error) {
	block, rest := pem.Decode(sig)
	if block == nil || block.Type != sshsig.PEMType || len(block.Headers) > 0 || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("its SSH signature cannot be read")
	}
	s, err := sshsig.ParseSignature(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("its SSH signature cannot be read: %w", err)
	}
	if err := checkSSH(s.PublicKey); err != nil {
		return nil, err
	}
	switch s.HashAlgorithm {
	case sshsig.HashSHA256, sshsig.HashSHA512:
	default:
		return nil, fmt.Errorf("its SSH signature is by the hash %.40q", s.HashAlgorithm)
	}
	// An RSA key would also verify SHA-1.
	if f := s.Signature.Format; s.PublicKey.Type() == ssh.KeyAlgoRSA && f != ssh.KeyAlgoRSASHA256 && f != ssh.KeyAlgoRSASHA512 {
		return nil, fmt.Errorf("its SSH signature is %.40q: a hash that is not accepted any more", f)
	}
	if err := sshsig.Verify(bytes.NewReader(payload), s, s.PublicKey, s.HashAlgorithm, sshNamespace); err != nil {
		return nil, fmt.Errorf("its SSH signature does not hold: %w", err)
	}
	return s.PublicKey, nil
}

// parsePGP reads one armored OpenPGP public key.
func parsePGP(text string) (*openpgp.Entity, error) {
	keys, err := openpgp.ReadArmoredKeyRing(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("it is not an armored OpenPGP public key: %w", err)
	}
	if len(keys) != 1 {
		return nil, fmt.Errorf("it holds %d OpenPGP keys: declare each by itself", len(keys))
	}
	if keys[0].PrivateKey != nil {
		return nil, errors.New("it is a private key: take it out of Git and make a new one")
	}
	return keys[0], nil
}

// parsePGPSignature reads an armored signature of exactly one packet.
func parsePGPSignature(sig []byte) (*packet.Signature, []byte, error) {
	block, err := armor.Decode(bytes.NewReader(sig))
	if err != nil || block.Type != "PGP SIGNATURE" {
		return nil, nil, errors.New("its OpenPGP signature cannot be read")
	}
	raw, err := io.ReadAll(block.Body)
	if err != nil {
		return nil, nil, fmt.Errorf("its OpenPGP signature cannot be read: %w", err)
	}
	packets := bytes.NewReader(raw)
	p, err := packet.Read(packets)
	if err != nil {
		return nil, nil, fmt.Errorf("its OpenPGP signature cannot be read: %w", err)
	}
	s, ok := p.(*packet.Signature)
	switch {
	case !ok || packets.Len() > 0:
		return nil, nil, errors.New("its OpenPGP signature is not one signature by itself")
	case s.SigType != packet.SigTypeBinary:
		// A text signature ignores line breaks, so it covers more than one text.
		return nil, nil, errors.New("its OpenPGP signature is not of the commit's bytes")
	case s.IssuerKeyId == nil:
		return nil, nil, errors.New("its OpenPGP signature does not say by which key it is")
	}
	return s, raw, nil
}

// verifyPGP returns an error unless key made the signature s of payload; raw is the
// packet of s. It rejects a key or signature that has expired or was revoked by now, for
// any time that the signature claims.
func verifyPGP(key *openpgp.Entity, payload []byte, s *packet.Signature, raw []byte, now time.Time) error {
	if s.CreationTime.After(now) && s.CreationTime.Before(now.Add(maxSkew)) {
		now = s.CreationTime
	}
	config := &packet.Config{
		Time:       func() time.Time { return now },
		MinRSABits: minRSABits,
		// Applies to the keys' own signatures too, which set the permitted uses of a
		// key.
		RejectHashAlgorithms:        map[crypto.Hash]bool{crypto.SHA1: true, crypto.MD5: true, crypto.RIPEMD160: true},
		RejectMessageHashAlgorithms: map[crypto.Hash]bool{crypto.SHA1: true, crypto.MD5: true, crypto.RIPEMD160: true},
	}
	if _, _, err := openpgp.VerifyDetachedSignature(openpgp.EntityList{key}, bytes.NewReader(payload), bytes.NewReader(raw),
		config); err != nil {
		return fmt.Errorf("its OpenPGP signature does not hold: %w", err)
	}
	if _, err := key.VerifyPrimaryKey(now, config); err != nil {
		return fmt.Errorf("its OpenPGP signature is by a key that is not valid any more: %w", err)
	}
	if _, ok := key.SigningKeyById(now, *s.IssuerKeyId, config); !ok {
		return errors.New("its OpenPGP signature is by a key that may not sign any more")
	}
	return nil
}
