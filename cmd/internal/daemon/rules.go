package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"berth/reconciler/loop"
	"berth/webhooks/outgoing"
	"berth/webhooks/secret"
)

// rulesConfig is the section rules of berth.yaml: where the webhooks of rules may go.
type rulesConfig struct {
	Hosts     []string              `json:"hosts"`
	Addresses []string              `json:"addresses"`
	Secrets   map[string]secret.Ref `json:"secrets"`
}

// sender returns what sends the webhooks of rules; nil without a section.
func (c *rulesConfig) sender() func(context.Context, loop.Webhook) (again bool, err error) {
	if c == nil {
		return nil
	}
	o := outgoing.Options{Hosts: c.Hosts, Secret: c.secret}
	for _, a := range c.Addresses {
		o.Addresses = append(o.Addresses, netip.MustParsePrefix(a)) // conflicts has checked them
	}
	s := outgoing.New(o)
	return func(ctx context.Context, w loop.Webhook) (again bool, err error) {
		err = s.Send(ctx, w.URL, w.Secret, w.ID, w.Body)
		return err != nil && !errors.Is(err, outgoing.ErrRefused), err
	}
}

// secret returns a key, which is read each time so that a replaced one takes effect.
func (c *rulesConfig) secret(name string) (string, error) {
	ref, ok := c.Secrets[name]
	if !ok {
		return "", fmt.Errorf("there is no %s in rules.secrets of berth.yaml", name)
	}
	return ref.Read()
}
