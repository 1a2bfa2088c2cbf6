package daemon

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"berth/cmd/internal/watch"
)

// configFile is the berth.yaml of an estate.
type configFile struct {
	registry *registry
	path     string
	accepted atomic.Pointer[Config] // the last accepted configuration
	offered  atomic.Pointer[Config] // the current content of the file, accepted or not; nil: unreadable
	refused  prometheus.Gauge       // 1 while the file differs from the accepted configuration
}

func newConfigFile(r *registry, path string, c *Config) *configFile {
	f := &configFile{registry: r, path: path, refused: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "berth_config_refused", Help: "1 while the configuration file has a configuration that is not in use.",
	})}
	f.accepted.Store(c)
	return f
}

// reject marks the file as refused. c stays accepted.
func (f *configFile) reject(c *Config) {
	f.accepted.Store(c)
	f.refused.Set(1)
}

// read returns the configuration in the file, if it can replace the accepted one
// while the daemon runs.
func (f *configFile) read(limiters *limiters) (*Config, error) {
	c, err := f.registry.readConfig(f.path)
	if err != nil {
		f.offered.Store(nil)
		return nil, err
	}
	f.offered.Store(c)
	old := f.accepted.Load()
	if c.limiter = old.limiter; c.Forge == nil || old.Forge == nil || c.Forge.Identity() != old.Forge.Identity() {
		c.limiter = limiters.of(c)
	}
	if field := old.restartNeeded(c); field != "" {
		return nil, fmt.Errorf("configuration: %s: %s cannot change while Berth runs: put it back, or restart", f.path, field)
	}
	return c, c.checkFiles()
}

// restartNeeded names a field whose new value needs a restart, or "".
func (c *Config) restartNeeded(next *Config) string {
	switch {
	case c.Estate != next.Estate:
		return "estate"
	case c.Listen != next.Listen:
		return "listen"
	case (c.TLS == nil) != (next.TLS == nil):
		return "tls"
	case c.Repository.Directory != next.Repository.Directory:
		return "repository.directory"
	case (c.Forge == nil) != (next.Forge == nil):
		return "forge"
	case c.kind != next.kind:
		return "forge.kind"
	}
	return ""
}

// reloader applies changes of the files that the daemon was started with. Secrets are
// read when they are used; the reloader only reports those that cannot be read.
type reloader struct {
	daemon      *Daemon
	certificate *certificate // nil: plain HTTP

	mu      sync.Mutex
	reloads *prometheus.CounterVec
}

func newReloader(d *Daemon) (*reloader, error) {
	r := &reloader{daemon: d, reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "berth_config_reloads_total", Help: "Changed configurations and certificates, by estate and result (taken or refused).",
	}, []string{"estate", "result"})}
	if err := d.reg.Register(r.reloads); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	for _, e := range d.all {
		if err := e.reg.Register(e.file.refused); err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	if c := d.all[0].config.Load().TLS; c != nil {
		r.certificate = &certificate{}
		if _, err := r.certificate.load(*c); err != nil {
			return nil, err
		}
		if err := d.reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "berth_tls_certificate_expires_seconds", Help: "Expiry of the served certificate, in Unix time.",
		}, r.certificate.expires)); err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	return r, nil
}

// run reloads at each change and each signal, until ctx ends.
func (r *reloader) run(ctx context.Context, reread <-chan os.Signal) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		degraded := func(reason string) { r.daemon.log.Warn("configuration watcher degraded", "reason", reason) }
		return watch.New(r.scan, degraded).Run(ctx, func([]string) error {
			r.reload()
			return nil
		})
	})
	g.Go(func() error { return r.handleSignals(ctx, reread) })
	return g.Wait()
}

// handleSignals reloads at each signal, until ctx ends.
func (r *reloader) handleSignals(ctx context.Context, reread <-chan os.Signal) error {
	for {
		select {
		case <-reread:
			r.daemon.log.Info("configuration reload requested by signal")
			r.reload()
		case <-ctx.Done():
			return nil
		}
	}
}

// scan stamps the configuration files, and the files that they name, by content. It
// includes the files of a refused configuration, as a missing one may appear later,
// and the directories that links lead to, as secrets are often replaced by a link.
func (r *reloader) scan() (watch.Files, error) {
	f := watch.Files{Stamps: map[string]string{}}
	for _, e := range r.daemon.all {
		for _, path := range e.file.paths() {
			data, err := os.ReadFile(path)
			f.Stamps[path] = fmt.Sprintf("%x", sha256.Sum256(data))
			if err != nil {
				f.Stamps[path] = err.Error()
			}
			f.Dirs = append(f.Dirs, filepath.Dir(path))
			if target, err := filepath.EvalSymlinks(path); err == nil {
				f.Dirs = append(f.Dirs, filepath.Dir(target))
			}
		}
	}
	slices.Sort(f.Dirs)
	f.Dirs = slices.Compact(f.Dirs)
	return f, nil
}

// paths returns the configuration file, and the files that it names.
func (f *configFile) paths() []string {
	paths := []string{f.path}
	for _, c := range []*Config{f.accepted.Load(), f.offered.Load()} {
		if c == nil {
			continue
		}
		secrets, files := c.references()
		for _, s := range secrets {
			if s.File != "" {
				paths = append(paths, s.File)
			}
		}
		paths = slices.AppendSeq(paths, maps.Values(files))
	}
	return paths
}

// reload reads everything again. It applies valid configurations, and logs invalid
// ones.
func (r *reloader) reload() {
	r.mu.Lock()
	defer r.mu.Unlock()
	all, errs := r.compatible()
	for i, e := range r.daemon.all {
		old, c, err := e.file.accepted.Load(), all[i], errs[i]
		switch {
		case err != nil:
			r.reloads.WithLabelValues(old.Estate, "refused").Inc()
			e.file.reject(old)
			e.log.Error("invalid configuration ignored; the previous one stays in use", "file", e.file.path, "error", err)
		case c == old:
			e.file.refused.Set(0)
		default:
			r.reloads.WithLabelValues(old.Estate, "taken").Inc()
			e.file.refused.Set(0)
			e.file.accepted.Store(c)
			select { // a configuration that was not started yet is obsolete
			case <-e.next:
			default:
			}
			e.next <- c
		}
	}
	if r.certificate == nil {
		return
	}
	switch changed, err := r.certificate.load(*r.daemon.all[0].file.accepted.Load().TLS); {
	case err != nil:
		r.reloads.WithLabelValues("", "refused").Inc()
		r.daemon.log.Error("invalid certificate ignored; the previous one stays in use", "error", err)
	case changed:
		r.reloads.WithLabelValues("", "taken").Inc()
		r.daemon.log.Info("certificate reloaded", "expires", r.certificate.current.Load().Leaf.NotAfter)
	}
}

// compatible returns a configuration for each estate: the one in its file, if it is
// valid and fits the others, or the accepted one with the error.
func (r *reloader) compatible() (all []*Config, errs []error) {
	estates := r.daemon.all
	errs = make([]error, len(estates))
	var paths []string
	for i, e := range estates {
		old := e.file.accepted.Load()
		c, err := e.file.read(e.limiters)
		if err != nil || reflect.DeepEqual(c, old) {
			c = old
		}
		paths, all, errs[i] = append(paths, e.file.path), append(all, c), err
	}
	// Several estates may change a shared value at once. While they conflict, one after the
	// other returns to its accepted configuration; accepted ones never conflict.
	for c := findConflict(paths, all); c != nil; c = findConflict(paths, all) {
		back := c.b
		if all[back] == estates[back].file.accepted.Load() {
			back = c.a
		}
		all[back], errs[back] = estates[back].file.accepted.Load(), c
	}
	return all, errs
}
