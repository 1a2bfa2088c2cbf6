package host

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"berth/runtimes"
)

// pins are the allowed keys of a host.
type pins struct {
	address, where string
	keys           []ssh.PublicKey
	revoked        ssh.HostKeyCallback // checks the known_hosts file; nil: not used
}

// pinned returns the keys of a host: those of the node, or else of known_hosts.
func pinned(o *SSHOptions, node, address string) (*pins, error) {
	p := &pins{address: address, where: "host_key of node " + node}
	rest := []byte(o.HostKey(node))
	for len(bytes.TrimSpace(rest)) > 0 {
		key, _, _, next, err := ssh.ParseAuthorizedKey(rest)
		if err != nil {
			return nil, fmt.Errorf("host_key of node %s is not an SSH key: %w", node, err)
		}
		p.keys, rest = append(p.keys, key), next
	}
	if len(p.keys) > 0 {
		return p, nil
	}
	if o.KnownHosts == "" {
		return nil, fmt.Errorf("node %s has no host_key, and no known_hosts file is configured", node)
	}
	check, err := knownhosts.New(o.KnownHosts)
	if err != nil {
		return nil, fmt.Errorf("known hosts: %w", err)
	}
	p.where, p.revoked = o.KnownHosts, check
	// A key that the file cannot contain makes the check return the known keys.
	probe, err := ssh.NewPublicKey(ed25519.PublicKey(make([]byte, ed25519.PublicKeySize)))
	if err != nil {
		return nil, err
	}
	var mismatch *knownhosts.KeyError
	if errors.As(check(address, &net.TCPAddr{IP: net.IPv4zero}, probe), &mismatch) {
		for _, k := range mismatch.Want {
			p.keys = append(p.keys, k.Key)
		}
	}
	if len(p.keys) == 0 {
		return nil, fmt.Errorf("no host key of %s is pinned: give node %s a host_key, or add it to %s", address, node, o.KnownHosts)
	}
	return p, nil
}

// algorithms returns those of the pinned keys, so that a host with several keys uses
// one of them.
func (p *pins) algorithms() []string {
	var list []string
	for _, k := range p.keys {
		names := []string{k.Type()}
		if k.Type() == ssh.KeyAlgoRSA {
			names = []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
		}
		for _, n := range names {
			if !slices.Contains(list, n) {
				list = append(list, n)
			}
		}
	}
	return list
}

func (p *pins) check(hostname string, remote net.Addr, key ssh.PublicKey) error {
	for _, k := range p.keys {
		if bytes.Equal(k.Marshal(), key.Marshal()) {
			if p.revoked != nil {
				return p.revoked(hostname, remote, key)
			}
			return nil
		}
	}
	// It may be another machine, so nothing is sent to it.
	var want []string
	for _, k := range p.keys {
		want = append(want, fingerprint(k))
	}
	return runtimes.NeedsPerson(fmt.Errorf("%s has host key %s, want %s (%s); if the machine was reinstalled, update the key there",
		p.address, fingerprint(key), strings.Join(want, " or "), p.where))
}

func fingerprint(k ssh.PublicKey) string {
	return k.Type() + " " + ssh.FingerprintSHA256(k)
}
