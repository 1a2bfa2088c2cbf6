package daemon

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"berth/cmd/internal/watch"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
)

// reload takes up what changes in the files that the daemon was started with,
// while it runs. Secrets are read when they are used, so nothing needs to be done
// for them but to say what is wrong with them before they are missed.
type reload struct {
	s           *estates
	certificate *certificate // nil: plain HTTP

	mu     sync.Mutex
	reread *prometheus.CounterVec
}

func newReload(s *estates) (*reload, error) {
	r := &reload{s: s, reread: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "berth_config_reloads_total", Help: "Configurations and certificates that changed, by estate and by what became of that.",
	}, []string{"estate", "result"})}
	if err := s.reg.Register(r.reread); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	for _, e := range s.all {
		c := e.config.Load()
		e.wanted.Store(c)
		if err := e.reg.Register(e.refused); err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	if c := s.all[0].config.Load().TLS; c != nil {
		r.certificate = &certificate{}
		if err := r.certificate.load(*c); err != nil {
			return nil, err
		}
		if err := s.reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "berth_tls_certificate_expires_seconds", Help: "When the certificate that is served ends, in Unix time.",
		}, func() float64 { return float64(r.certificate.now.Load().Leaf.NotAfter.Unix()) })); err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	return r, nil
}

// run takes up changes until ctx ends.
func (r *reload) run(ctx context.Context, reread <-chan os.Signal) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		say := func(line string) { r.s.log.Warn("configuration watcher degraded", "reason", line) }
		return watch.New(r.see, say).Run(ctx, func([]string) error {
			r.look()
			return nil
		})
	})
	g.Go(func() error { return r.obey(ctx, reread) })
	return g.Wait()
}

// obey looks when it is asked to, until ctx ends.
func (r *reload) obey(ctx context.Context, reread <-chan os.Signal) error {
	for {
		select {
		case <-reread:
			r.s.log.Info("asked to read the configuration again")
			r.look()
		case <-ctx.Done():
			return nil
		}
	}
}

// see stamps all files that the configurations name, and themselves, by what is in
// them: also those that only a refused one names, as what it lacks may come later. It
// finds where to be told of changes: also where a link leads, as secrets
// are often replaced by pointing a link elsewhere.
func (r *reload) see() (watch.Files, error) {
	s := watch.Files{Stamps: map[string]string{}}
	for _, e := range r.s.all {
		secrets, others := e.wanted.Load().files()
		if c := e.offered.Load(); c != nil {
			more, paths := c.files()
			secrets, others = append(secrets, more...), append(others, paths...)
		}
		for _, secret := range secrets {
			others = append(others, secret.File)
		}
		for _, path := range append(others, e.path) {
			if path == "" {
				continue
			}
			data, err := os.ReadFile(path)
			s.Stamps[path] = fmt.Sprintf("%x", sha256.Sum256(data))
			if err != nil {
				s.Stamps[path] = err.Error()
			}
			s.Dirs = append(s.Dirs, filepath.Dir(path))
			if real, err := filepath.EvalSymlinks(path); err == nil {
				s.Dirs = append(s.Dirs, filepath.Dir(real))
			}
		}
	}
	slices.Sort(s.Dirs)
	s.Dirs = slices.Compact(s.Dirs)
	return s, nil
}

// look reads everything again. What is right is gone on with; what is not is told,
// and what there is stays.
func (r *reload) look() {
	r.mu.Lock()
	defer r.mu.Unlock()
	all, errs := r.fitting()
	for i, e := range r.s.all {
		old, c, err := e.wanted.Load(), all[i], errs[i]
		switch {
		case err != nil:
			r.reread.WithLabelValues(old.Estate, "refused").Inc()
			e.refused.Set(1)
			e.log.Error("the configuration is not taken up; the one before stays", "file", e.path, "error", err)
		case c == old:
			e.refused.Set(0)
		default:
			r.reread.WithLabelValues(old.Estate, "taken").Inc()
			e.refused.Set(0)
			e.wanted.Store(c)
			select { // what nobody began with yet is over
			case <-e.next:
			default:
			}
			e.next <- c
		}
	}
	if r.certificate == nil {
		return
	}
	switch changed, err := r.certificate.again(*r.s.all[0].wanted.Load().TLS); {
	case err != nil:
		r.reread.WithLabelValues("", "refused").Inc()
		r.s.log.Error("the certificate is not taken up; the one before stays", "error", err)
	case changed:
		r.reread.WithLabelValues("", "taken").Inc()
		r.s.log.Info("goes on with the new certificate", "expires", r.certificate.now.Load().Leaf.NotAfter)
	}
}

// fitting are the configurations that the estates can go on with: what their files
// say now where that is right and they go together, and what they have where not.
// The errors are of the same estates.
func (r *reload) fitting() (all []*config, errs []error) {
	errs = make([]error, len(r.s.all))
	var paths []string
	for i, e := range r.s.all {
		old := e.wanted.Load()
		c, err := e.reread(old)
		if err != nil || reflect.DeepEqual(c, old) {
			c = old
		}
		paths, all, errs[i] = append(paths, e.path), append(all, c), err
	}
	// Several may change what they share at once. Where that does not fit, they go
	// back one by one to what they have, which does.
	for c := together(paths, all); c != nil; c = together(paths, all) {
		back := c.b
		if all[back] == r.s.all[back].wanted.Load() {
			back = c.a
		}
		all[back], errs[back] = r.s.all[back].wanted.Load(), c
	}
	return all, errs
}

// reread is the configuration of an estate as its file says it now, if that can take
// the place of the one it has.
func (e *estate) reread(old *config) (*config, error) {
	c, err := ReadConfig(e.path)
	if err != nil {
		e.offered.Store(nil)
		return nil, err
	}
	e.offered.Store(c)
	if c.pacer = old.pacer; c.speaker() != old.speaker() {
		c.pacer = e.pace.of(c)
	}
	if fixed := old.fixed(c); fixed != "" {
		return nil, fmt.Errorf("configuration: %s: %s cannot change while Berth runs: put it back, or restart", e.path, fixed)
	}
	return c, c.usable()
}

// fixed names what another configuration has that this one's process cannot go
// over to; "" is nothing.
func (c *config) fixed(next *config) string {
	switch {
	case c.Estate != next.Estate:
		return "estate"
	case c.Listen != next.Listen:
		return "listen"
	case (c.TLS == nil) != (next.TLS == nil):
		return "tls"
	case c.Repository.Directory != next.Repository.Directory:
		return "repository.directory"
	case (c.GitHub == nil) != (next.GitHub == nil):
		return "github"
	}
	return ""
}

// usable says what is wrong with the files that a configuration names.
func (c *config) usable() error {
	secrets := c.secrets()
	_, others := c.files()
	var errs []error
	for _, field := range slices.Sorted(maps.Keys(secrets)) {
		s := secrets[field]
		if _, err := s.read(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", field, err))
		}
	}
	for _, path := range others {
		if path != "" {
			_, err := os.ReadFile(path)
			errs = append(errs, err)
		}
	}
	if c.GitHub != nil {
		_, err := c.forgeTokens()
		errs = append(errs, err)
	}
	if c.API != nil {
		errs = append(errs, (&people{tokens: c.API.Tokens}).read(time.Now()))
	}
	return errors.Join(errs...)
}

// files are the secrets and the other files that a configuration names.
func (c *config) files() (secrets []secret, others []string) {
	var walk func(v reflect.Value, name string)
	walk = func(v reflect.Value, name string) {
		if s, ok := v.Interface().(secret); ok {
			secrets = append(secrets, s)
			return
		}
		switch v.Kind() {
		case reflect.Pointer:
			if !v.IsNil() {
				walk(v.Elem(), name)
			}
		case reflect.Slice:
			for i := range v.Len() {
				walk(v.Index(i), name)
			}
		case reflect.Map:
			for _, k := range v.MapKeys() {
				walk(v.MapIndex(k), name)
			}
		case reflect.Struct:
			for f, value := range v.Fields() {
				if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag != "" {
					walk(value, tag)
				}
			}
		case reflect.String:
			switch name {
			case "key", "cert", "ssh_key", "known_hosts", "signing_key":
				others = append(others, v.String())
			}
		}
	}
	walk(reflect.ValueOf(c), "")
	return secrets, others
}

// tlsConfig is berth.yaml's tls section: files, PEM.
type tlsConfig struct {
	Cert string `json:"cert"`
	Key  string `json:"key"`
}

// certificate is the one that is served.
type certificate struct {
	now atomic.Pointer[tls.Certificate]
}

// load takes up the certificate in the files; if they do not hold a pair, the one
// before stays.
func (c *certificate) load(from tlsConfig) error {
	_, err := c.again(from)
	return err
}

// again says whether it is another one now.
func (c *certificate) again(from tlsConfig) (changed bool, err error) {
	pair, err := tls.LoadX509KeyPair(from.Cert, from.Key)
	if err != nil {
		var missing *fs.PathError
		if !errors.As(err, &missing) {
			err = fmt.Errorf("%s and %s: %w", from.Cert, from.Key, err)
		}
		return false, fmt.Errorf("tls: %w", err)
	}
	old := c.now.Swap(&pair)
	return old == nil || !slices.EqualFunc(old.Certificate, pair.Certificate, slices.Equal), nil
}

// config is of a server that shows the certificate of now.
func (c *certificate) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return c.now.Load(), nil
	}}
}
