package daemon

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync/atomic"
)

// tlsConfig is the section tls of berth.yaml: PEM files.
type tlsConfig struct {
	Cert string `json:"cert"`
	Key  string `json:"key"`
}

// certificate is the served certificate.
type certificate struct {
	current atomic.Pointer[tls.Certificate]
}

// load reads the certificate from files, and reports whether it is another one. If
// the files hold no pair, the current one stays.
func (c *certificate) load(from tlsConfig) (changed bool, err error) {
	pair, err := tls.LoadX509KeyPair(from.Cert, from.Key)
	if err != nil {
		var missing *fs.PathError
		if !errors.As(err, &missing) {
			err = fmt.Errorf("%s and %s: %w", from.Cert, from.Key, err)
		}
		return false, fmt.Errorf("tls: %w", err)
	}
	old := c.current.Swap(&pair)
	return old == nil || !slices.EqualFunc(old.Certificate, pair.Certificate, slices.Equal), nil
}

// expires returns the expiry in Unix time.
func (c *certificate) expires() float64 { return float64(c.current.Load().Leaf.NotAfter.Unix()) }

// config returns the configuration of a server that shows the current certificate.
func (c *certificate) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return c.current.Load(), nil
	}}
}
