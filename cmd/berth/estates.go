package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"berth/schema/audit"
	"berth/webhooks"
	"berth/webhooks/api"
)

// estates are those that one process keeps (requirement F8), behind one address.
// Each has a daemon of its own: what befalls one is no other's.
type estates struct {
	all []*estate
	log *slog.Logger
	reg *prometheus.Registry
}

// estate is one of them.
type estate struct {
	config *config
	log    *slog.Logger // carries its name
	reg    prometheus.Registerer
	up     atomic.Pointer[daemon] // nil: it could not be begun yet
}

// newEstates reads the configurations and begins nothing yet.
func newEstates(paths []string, log *slog.Logger) (*estates, error) {
	configs, err := readConfigs(paths)
	if err != nil {
		return nil, err
	}
	s := &estates{log: log, reg: prometheus.NewRegistry()}
	s.reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, c := range configs {
		s.all = append(s.all, &estate{
			config: c, log: log.With("estate", c.Estate),
			reg: prometheus.WrapRegistererWith(prometheus.Labels{"estate": c.Estate}, s.reg),
		})
	}
	return s, nil
}

// readConfigs reads the configurations of estates that one process shall keep.
func readConfigs(paths []string) ([]*config, error) {
	if len(paths) == 0 {
		return nil, &exitError{2, errors.New("no configuration: name one with -c")}
	}
	var all []*config
	taken := map[string]string{} // what only one may have → whose it is
	for i, path := range paths {
		c, err := readConfig(path)
		if err != nil {
			return nil, &exitError{1, err}
		}
		if c.Listen != "" && i > 0 && c.address() != all[0].address() {
			return nil, &exitError{2, fmt.Errorf("%s and %s: one process listens at one address: take listen out of the second, or say %s", paths[0], path, all[0].address())}
		}
		for _, own := range c.owns() {
			if other := taken[own.what]; other != "" {
				return nil, &exitError{2, fmt.Errorf("%s and %s: both have %s: %s", other, path, own.what, own.advice)}
			}
		}
		for _, own := range c.owns() {
			taken[own.what] = path
		}
		all = append(all, c)
	}
	sharePacers(all)
	return all, nil
}

// owned is something that two estates of a process cannot share.
type owned struct{ what, advice string }

// owns are what no other estate of the process may have. Hosts are named in the
// estates; there the epoch tells: a host obeys the estate that led last.
func (c *config) owns() []owned {
	place := func(url string) string {
		return "berth's branches in " + strings.ToLower(strings.TrimSuffix(strings.TrimSuffix(url, "/"), ".git"))
	}
	out := []owned{
		{"the name estate: " + c.Estate, "give each a name of its own"},
		{"the cache " + filepath.Clean(c.Repository.Directory), "give each a repository.directory of its own"},
		{place(c.Repository.URL), "give each a repository of its own"},
	}
	if s := c.Repository.StatusURL; s != "" && place(s) != place(c.Repository.URL) {
		out = append(out, owned{place(s), "give each a status_url of its own"})
	}
	if m := c.MemoryRuntime; m != nil {
		out = append(out, owned{"the memory_runtime in " + filepath.Clean(m.Directory), "give each a directory of its own"})
	}
	return out
}

// address is where HTTP is served.
func (c *config) address() string { return cmp.Or(c.Listen, "127.0.0.1:8080") }

// serve keeps the estates and answers for them until ctx ends.
func (s *estates) serve(ctx context.Context) error {
	o := webhooks.MuxOptions{Estates: map[string]http.Handler{}, Ready: s.ready, Metrics: s.reg, Log: s.log}
	var receivers []webhooks.Receiver
	var names []string
	for _, e := range s.all {
		names = append(names, e.config.Estate)
		if e.config.GitHub != nil {
			receivers = append(receivers, webhooks.Receiver{Estate: e.config.Estate, Secrets: e.config.webhookSecrets, Enqueue: e.wake})
		}
		reading, err := e.readAPI()
		if err != nil {
			return fmt.Errorf("estate %s: %w", e.config.Estate, err)
		}
		if reading == nil {
			continue
		}
		if o.Estates[e.config.Estate] = reading; len(s.all) == 1 {
			o.API = reading
		}
	}
	if len(receivers) > 0 {
		var err error
		if o.GitHub, err = webhooks.Handler(webhooks.Options{Receivers: receivers, Log: s.log, Registry: s.reg}); err != nil {
			return err
		}
	}
	server := webhooks.Server(webhooks.Mux(o), s.log)
	listener, err := net.Listen("tcp", s.all[0].config.address())
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	s.log.Info("serving", "address", listener.Addr().String(), "estates", names)

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.keep(ctx) })
	g.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		return server.Shutdown(stop)
	})
	return g.Wait()
}

// ready: each daemon leads and has decided a commit.
func (s *estates) ready() error {
	for _, e := range s.all {
		d := e.up.Load()
		switch {
		case d == nil:
			return fmt.Errorf("estate %s is not up: the log says why", e.config.Estate)
		case !d.ready():
			return fmt.Errorf("estate %s: no commit has been decided yet", e.config.Estate)
		}
	}
	return nil
}

// keep keeps all of them until ctx ends, and then until each has written what it
// had to.
func (s *estates) keep(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, e := range s.all {
		g.Go(func() error { return e.keep(ctx, len(s.all) == 1) })
	}
	return g.Wait()
}

// once brings all of them to what is declared, side by side, and prints what is
// not.
func (s *estates) once(ctx context.Context, timeout time.Duration) error {
	errs := make([]error, len(s.all))
	var wg sync.WaitGroup
	for i, e := range s.all {
		wg.Go(func() {
			of := ""
			if len(s.all) > 1 {
				of = "estate " + e.config.Estate + ": "
			}
			err := e.with(ctx, func(d *daemon) error {
				left, err := d.once(ctx, timeout)
				for _, l := range left {
					fmt.Fprintln(os.Stderr, "not converged:", of+l.What)
				}
				return err
			})
			if err != nil {
				errs[i] = fmt.Errorf("%s%w", of, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// How long an estate that ended waits until it is begun again, at first and at
// most.
const (
	beginAgain   = time.Second
	beginAgainIn = time.Minute
)

// keep keeps an estate until ctx ends. If it ends before, that is the error where
// it is alone: whoever started the process starts it again. Beside others, which
// go on, it is begun again here.
func (e *estate) keep(ctx context.Context, alone bool) error {
	for wait := beginAgain; ; wait = min(2*wait, beginAgainIn) {
		began := time.Now()
		err := e.with(ctx, func(d *daemon) error { return d.loop.Run(ctx) })
		if alone || ctx.Err() != nil {
			return err
		}
		if time.Since(began) > beginAgainIn {
			wait = beginAgain
		}
		e.log.Error("the estate is not kept; it is begun again, and the others go on", "error", err, "again_in", wait)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
}

// with lets a daemon of the estate do something.
func (e *estate) with(ctx context.Context, do func(*daemon) error) error {
	d, err := newDaemon(ctx, e.config, e.log)
	if err != nil {
		return err
	}
	defer d.close()
	if err := e.reg.Register(d.reg); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	defer e.reg.Unregister(d.reg)
	e.up.Store(d)
	defer e.up.Store(nil)
	return do(d)
}

// wake is told of deliveries that the estate's own secret has signed.
func (e *estate) wake(ev webhooks.Event) error {
	w := &waker{repository: e.config.GitHub.Owner + "/" + e.config.GitHub.Repository, log: e.log}
	if err := w.ours(ev); err != nil {
		return err
	}
	d := e.up.Load()
	if d == nil {
		return errors.New("the estate is not up")
	}
	w.loop, w.forge = d.loop, d.forge
	w.wake(ev)
	return nil
}

// readAPI answers GET /api/v1/…; nil where berth.yaml has no api section.
func (e *estate) readAPI() (http.Handler, error) {
	c := e.config
	if c.API == nil {
		return nil, nil
	}
	people := &people{tokens: c.API.Tokens, log: e.log}
	if err := people.read(time.Now()); err != nil {
		return nil, err
	}
	return api.New(api.Options{
		Estate: c.Estate, Administrators: c.Authority.Administrators, Source: e.view, People: people.now, Off: c.API.off(),
		Audit: func(r audit.Record) {
			e.log.Warn("the glass was broken", "actor", r.Actor, "reason", r.Reason, "verdict", r.Verdict, "permission", r.Permission, "key", r.Key.String(), "correlation_id", r.CorrelationID)
			if d := e.up.Load(); d != nil {
				d.loop.Audit(r)
			}
		},
		Log: e.log,
	})
}

// view is what the loop knows; false while there is none, or it knows nothing.
func (e *estate) view() (api.View, bool) {
	d := e.up.Load()
	if d == nil {
		return api.View{}, false
	}
	v, ok := d.loop.View()
	return api.View(v), ok
}
