package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"berth/reconciler/loop"
	"berth/schema"
)

// probeTimeout bounds one question to a peer.
const probeTimeout = 2 * time.Second

// peers returns the daemons of the estate, of which one leads.
func (c *Config) peers() loop.Peers {
	if c.API == nil || c.API.URL == "" {
		return loop.Peers{}
	}
	client := &http.Client{
		Timeout: probeTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	known, path := c.API.Peers, "/estates/"+c.Estate+"/leader"
	return loop.Peers{URL: c.API.URL, Leads: func(ctx context.Context, leader string) bool {
		if !slices.Contains(known, leader) { // berth/status says who leads; only berth.yaml says whom to ask
			return false
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, leader+path, nil)
		if err != nil {
			return false
		}
		res, err := client.Do(req)
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		return res.StatusCode == http.StatusOK
	}}
}

// peers checks the URLs of the estate's daemons.
func (k conflictCheck) peers() {
	if k.config.API == nil {
		return
	}
	plain := func(text string) bool {
		u, err := url.Parse(text)
		return err == nil && u.Scheme == "http" && !schema.IsLoopback(u.Hostname())
	}
	k.check(plain(k.config.API.URL), "api.url", "api.url", "people would send their tokens without encryption: use https")
	k.check(len(k.config.API.Peers) > 0 && k.config.API.URL == "", "api.peers", "api.url",
		"missing: a daemon with peers needs its own URL, which its leadership record has")
	for i, p := range k.config.API.Peers {
		at := fmt.Sprintf("api.peers[%d]", i)
		k.check(plain(p), at, at, "people would send their tokens without encryption: use https")
		k.check(p == k.config.API.URL, at, at, "this is api.url: name the other daemons only")
	}
}

// leads returns nil while this daemon leads the estate, else the reason.
func (e *estate) leads() error {
	d := e.running.Load()
	if d == nil {
		return errors.New("the estate is not up: the log says why")
	}
	if epoch, _ := d.loop.Leadership(); epoch > 0 {
		return nil
	}
	if leader := d.loop.LeaderURL(); leader != "" {
		return fmt.Errorf("standing by; %s leads", leader)
	}
	return errors.New("leadership is not taken yet")
}

// leaderURL returns the URL of the leader while this daemon is its standby, else "".
func (e *estate) leaderURL() string {
	if d := e.running.Load(); d != nil {
		return d.loop.LeaderURL()
	}
	return ""
}
