package daemon

import (
	"context"
	"fmt"
	"net/netip"

	"berth/runtimes/artifact"
)

// artifactsConfig is the section artifacts of berth.yaml: the sources that Berth may
// observe in addition to those that policy allows.
type artifactsConfig struct {
	Interval    duration                  `json:"interval"`
	PlainHTTP   []string                  `json:"plain_http"`
	TokenHosts  map[string][]string       `json:"token_hosts"`
	Addresses   []string                  `json:"addresses"`
	Directories []string                  `json:"directories"`
	Secrets     map[string]registrySecret `json:"secrets"`
}

// registrySecret is a credential, with the tenants that may name it and the hosts
// that it may be sent to.
type registrySecret struct {
	Username string   `json:"username"`
	Password secret   `json:"password"`
	Hosts    []string `json:"hosts"`
	Tenants  []string `json:"tenants"`
}

// looker returns the observer of artifacts.
func (c *artifactsConfig) looker() *artifact.Looker {
	o := artifact.Options{Secrets: registrySecrets(c.Secrets), PlainHTTP: c.PlainHTTP, TokenHosts: c.TokenHosts, Directories: c.Directories}
	for _, a := range c.Addresses {
		o.Addresses = append(o.Addresses, netip.MustParsePrefix(a)) // conflicts has checked them
	}
	return artifact.New(o)
}

// registrySecrets implements artifact.Secrets.
type registrySecrets map[string]registrySecret

func (s registrySecrets) Secret(_ context.Context, name string) (artifact.Credential, error) {
	of, ok := s[name]
	if !ok {
		return artifact.Credential{}, fmt.Errorf("berth.yaml has no artifacts.secrets.%s", name)
	}
	password, err := of.Password.read()
	if err != nil {
		return artifact.Credential{}, err
	}
	return artifact.Credential{Username: of.Username, Password: artifact.Hidden(password), Hosts: of.Hosts, Tenants: of.Tenants}, nil
}
