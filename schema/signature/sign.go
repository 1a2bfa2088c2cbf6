package signature

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// SigningKey is an SSH private key that signs commits as Git does. It is safe for
// concurrent use.
type SigningKey struct {
	signer ssh.Signer
}

// ParseSigningKey reads a private key in the format of ssh-keygen. It returns an error
// for a key with a passphrase or of a type that CheckKey refuses.
func ParseSigningKey(data []byte) (*SigningKey, error) {
	signer, err := ssh.ParsePrivateKey(data)
	var locked *ssh.PassphraseMissingError
	switch {
	case errors.As(err, &locked):
		return nil, errors.New("the key has a passphrase; make one without: ssh-keygen -t ed25519 -N '' -f FILE")
	case err != nil:
		return nil, fmt.Errorf("the file holds no SSH private key (%w); make one: ssh-keygen -t ed25519 -N '' -f FILE", err)
	}
	if err := checkSSH(signer.PublicKey()); err != nil {
		return nil, err
	}
	return &SigningKey{signer}, nil
}

// Fingerprint returns the fingerprint of the public key, as ssh-keygen -l prints it.
func (k *SigningKey) Fingerprint() string { return ssh.FingerprintSHA256(k.signer.PublicKey()) }

// SignCommit adds the header gpgsig to the raw bytes of an unsigned commit.
func (k *SigningKey) SignCommit(raw []byte) ([]byte, error) {
	sig, err := sshsig.Sign(bytes.NewReader(raw), k.signer, sshsig.HashSHA512, sshNamespace)
	if err != nil {
		return nil, fmt.Errorf("sign a commit: %w", err)
	}
	head, message, ok := bytes.Cut(raw, []byte("\n\n"))
	if !ok {
		return nil, errors.New("sign a commit: it has no message")
	}
	header := strings.ReplaceAll(strings.TrimSpace(string(sshsig.Armor(sig))), "\n", "\n ")
	return slices.Concat(head, []byte("\ngpgsig "+header+"\n\n"), message), nil
}
