package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"sigs.k8s.io/yaml"

	"berth/cmd/internal/labtest"
)

// daemonConfig is the part of the configuration that differs between daemons.
type daemonConfig struct {
	name   string // of its files; one daemon at a time uses it
	more   map[string]any
	mirror string // directory of the cache; empty: by name
	url    string // of the repository; empty: the forge's
}

// served is a `berth serve` process.
type served struct {
	cmd    *exec.Cmd
	listen string
	log    string        // file
	limit  time.Duration // of its end
	ended  chan struct{}
	err    error // of its end; set before ended is closed
}

// configure writes a berth.yaml, and returns its path and the address that it listens
// on.
func (s *stage) configure(c daemonConfig) (path, listen string, err error) {
	if listen, err = labtest.FreePort(); err != nil {
		return "", "", err
	}
	if c.mirror == "" {
		c.mirror = filepath.Join(s.dir, c.name+"-mirror")
	}
	if c.url == "" {
		c.url = s.forge.CloneURL()
	}
	tokenFile, secretFile := filepath.Join(s.dir, "token"), filepath.Join(s.dir, "webhook-secret")
	for path, text := range map[string]string{tokenFile: labtest.Token, secretFile: demoSecret, s.userTokenFile(): userToken} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return "", "", err
		}
	}
	config := map[string]any{
		"estate": "demo",
		"repository": map[string]any{
			"url": c.url, "token": map[string]string{"file": tokenFile}, "username": "x-access-token", "directory": c.mirror,
		},
		"forge": map[string]any{"kind": "github",
			"api_url": s.forge.APIURL(), "owner": "example", "repository": "estate", "login": labtest.App + "[bot]", "report": "checks",
			"token": map[string]string{"file": tokenFile}, "webhook_secret": map[string]string{"file": secretFile},
		},
		"authority": map[string]any{"administrators": []string{labtest.Administrator}},
		"listen":    listen,
		"api": map[string]any{"tokens": []any{map[string]any{"login": labtest.ProjectAdmin,
			"token": map[string]string{"file": s.userTokenFile()}}}},
	}
	switch {
	case s.memory && c.more["ssh"] != nil: // both would run the same backend
	case s.memory:
		config["memory_runtime"] = map[string]any{"directory": filepath.Join(s.dir, "world"), "backends": []string{"slurm"}}
	default:
		config["ssh"] = map[string]string{"user": s.lab.User(), "key": s.lab.KeyFile(), "known_hosts": s.lab.KnownHosts()}
	}
	for k, v := range c.more {
		config[k] = v
	}
	data, err := yaml.Marshal(config)
	if err != nil {
		return "", "", err
	}
	path = filepath.Join(s.dir, c.name+".yaml")
	return path, listen, os.WriteFile(path, data, 0o600)
}

// launch starts a daemon. It returns before the daemon is ready.
func (s *stage) launch(c daemonConfig) (*served, error) {
	path, listen, err := s.configure(c)
	if err != nil {
		return nil, err
	}
	d := &served{
		cmd: exec.Command(s.berth, "serve", "-c", path), listen: listen,
		log: filepath.Join(s.dir, c.name+".log"), limit: max(30*time.Second, s.patience), ended: make(chan struct{}),
	}
	log, err := os.OpenFile(d.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has its own
	d.cmd.Stdout, d.cmd.Stderr = log, log
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		d.err = d.cmd.Wait()
		close(d.ended)
	}()
	return d, nil
}

// startDaemon starts the daemon that receives the forge's webhooks, and waits until it
// has decided its first commit.
func (s *stage) startDaemon(ctx context.Context) (err error) {
	if s.daemon, err = s.launch(daemonConfig{name: "berth"}); err != nil {
		return err
	}
	s.forge.SetWebhook("http://" + s.daemon.listen + "/webhooks/github")
	return s.untilReady(ctx, s.daemon)
}

func (s *stage) untilReady(ctx context.Context, d *served) error {
	return s.until(ctx, "the daemon is ready", 20*time.Second, func() (bool, error) {
		select {
		case <-d.ended:
			return false, fmt.Errorf("the daemon ended: %v", d.err)
		default:
		}
		resp, err := http.Get("http://" + d.listen + "/readyz")
		if err != nil {
			return false, nil // not listening yet
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK, nil
	})
}

// stop ends the daemon with SIGTERM.
func (d *served) stop() error {
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	select {
	case <-d.ended:
		if d.err != nil {
			return fmt.Errorf("the daemon ended with %w", d.err)
		}
		return nil
	case <-time.After(d.limit):
		d.kill()
		return fmt.Errorf("the daemon did not end within %.0f s of SIGTERM", d.limit.Seconds())
	}
}

// kill ends the daemon with SIGKILL.
func (d *served) kill() {
	_ = d.cmd.Process.Kill() // it may have ended already
	<-d.ended
}
