package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

	"berth/cmd/internal/cli"
	"berth/reconciler"
	"berth/schema/audit"
	"berth/webhooks"
	"berth/webhooks/api"
	"berth/webhooks/github"
)

// estates are those that one process keeps (requirement F8), behind one address.
// Each has a daemon of its own: what befalls one is no other's.
type estates struct {
	all []*estate
	log *slog.Logger
	reg *prometheus.Registry
}

// estate is one of them. It outlives its daemons: what is delivered while there is
// none is kept for the next.
type estate struct {
	path       string       // of its berth.yaml
	log        *slog.Logger // carries its name
	pace       *paces       // of all estates of the process
	reg        prometheus.Registerer
	config     atomic.Pointer[config]
	wanted     atomic.Pointer[config]  // what its file said when it was last right
	offered    atomic.Pointer[config]  // what its file says, right or not; nil: nothing that can be read
	next       chan *config            // wanted, where it is to be gone on with
	refused    prometheus.Gauge        // 1 while its file says something else than it is kept by
	up         atomic.Pointer[daemon]  // nil: it could not be begun yet
	api        atomic.Pointer[api.API] // nil: there is none
	deliveries *deliveries             // nil: there is no forge, or nobody serves
	glass      *glass                  // nil: nobody serves
	late       time.Duration           // a webhook may be
}

// newEstates reads the configurations and begins nothing yet.
func NewEstates(paths []string, log *slog.Logger) (*estates, error) {
	configs, err := readConfigs(paths)
	if err != nil {
		return nil, err
	}
	s := &estates{log: log, reg: prometheus.NewRegistry()}
	s.reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	pace := newPaces(configs[0].Repository.Directory, log)
	for i, c := range configs {
		c.pacer = pace.of(c)
		e := &estate{
			path: paths[i], pace: pace, log: log.With("estate", c.Estate), next: make(chan *config, 1), late: lateness,
			refused: prometheus.NewGauge(prometheus.GaugeOpts{Name: "berth_config_refused", Help: "1 while the configuration in the file is not the one that is worked by."}),
			reg:     prometheus.WrapRegistererWith(prometheus.Labels{"estate": c.Estate}, s.reg),
		}
		e.config.Store(c)
		s.all = append(s.all, e)
	}
	return s, nil
}

// readConfigs reads the configurations of estates that one process shall keep.
func readConfigs(paths []string) ([]*config, error) {
	if len(paths) == 0 {
		return nil, errors.New("no configuration: name one with -c")
	}
	var all []*config
	var wrong []error
	for _, path := range paths {
		c, err := ReadConfig(path)
		wrong = append(wrong, err)
		all = append(all, c)
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	if c := together(paths, all); c != nil {
		return nil, c
	}
	return all, nil
}

// ConflictError is why one process cannot keep two estates.
type ConflictError struct {
	a, b int // which they are, a before b
	why  string
}

func (c *ConflictError) Error() string { return c.why }

// together says what keeps one process from keeping estates of these
// configurations; nil: nothing.
func together(paths []string, all []*config) *ConflictError {
	taken := map[string]int{} // what only one may have → whose it is
	for i, c := range all {
		if c.Listen != "" && i > 0 && c.address() != all[0].address() {
			return &ConflictError{0, i, fmt.Sprintf("%s and %s: one process listens at one address: take listen out of the second, or say %s", paths[0], paths[i], all[0].address())}
		}
		if c.TLS != nil && i > 0 && (all[0].TLS == nil || *c.TLS != *all[0].TLS) {
			return &ConflictError{0, i, fmt.Sprintf("%s and %s: one process has one certificate: take tls out of the second, and say it in the first", paths[0], paths[i])}
		}
		for _, own := range c.owns() {
			if other, ok := taken[own.what]; ok {
				return &ConflictError{other, i, fmt.Sprintf("%s and %s: both have %s: %s", paths[other], paths[i], own.what, own.advice)}
			}
		}
		for _, own := range c.owns() {
			taken[own.what] = i
		}
	}
	return nil
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

// serve keeps the estates and answers for them until ctx ends. Each signal on
// reread has the configurations looked at, as does each change of them.
func (s *estates) Serve(ctx context.Context, reread <-chan os.Signal) error {
	o := webhooks.MuxOptions{Estates: map[string]http.Handler{}, NoAPI: http.HandlerFunc(api.NotServed), Ready: s.ready, Metrics: s.reg, Log: s.log}
	var receivers []webhooks.Receiver
	var names []string
	for _, e := range s.all {
		c := e.config.Load()
		names = append(names, c.Estate)
		if c.GitHub != nil {
			if err := e.keepDeliveries(c); err != nil {
				return fmt.Errorf("estate %s: %w", c.Estate, err)
			}
			receivers = append(receivers, webhooks.Receiver{Estate: c.Estate, Take: e.take, Secrets: func() ([][]byte, error) { return e.config.Load().webhookSecrets() }})
		}
		e.glass = openGlass(c, e.log)
		if err := e.openAPI(c); err != nil {
			return fmt.Errorf("estate %s: %w", c.Estate, err)
		}
		if o.Estates[c.Estate] = http.HandlerFunc(e.serveAPI); len(s.all) == 1 {
			o.API = o.Estates[c.Estate]
		}
	}
	if len(receivers) > 0 {
		h, err := webhooks.Handler(webhooks.Options{Format: github.Webhook(), Receivers: receivers, Log: s.log, Registry: s.reg})
		if err != nil {
			return err
		}
		o.Webhooks = map[string]http.Handler{"github": h}
	}
	reload, err := newReload(s)
	if err != nil {
		return err
	}
	server := webhooks.Server(webhooks.Mux(o), s.log)
	listener, err := net.Listen("tcp", s.all[0].config.Load().address())
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	answer := server.Serve
	if reload.certificate != nil {
		server.TLSConfig = reload.certificate.config()
		answer = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
	}
	s.log.Info("serving", "address", listener.Addr().String(), "tls", reload.certificate != nil, "estates", names)

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.Keep(ctx) })
	g.Go(func() error { return reload.run(ctx, reread) })
	for _, e := range s.all {
		if e.deliveries != nil {
			g.Go(func() error { return e.sweep(ctx, e.forgesLog) })
		}
	}
	g.Go(func() error {
		if err := answer(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err := server.Shutdown(stop); !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		// Somebody is connected who says nothing, or takes too long: what was not
		// acknowledged is sent, or found, again.
		return server.Close()
	})
	err = g.Wait()
	for _, e := range s.all {
		if e.deliveries != nil {
			err = errors.Join(err, e.deliveries.Close())
		}
		err = errors.Join(err, e.glass.Close())
	}
	return err
}

// ready: each daemon leads and has decided a commit.
func (s *estates) ready() error {
	for _, e := range s.all {
		d := e.up.Load()
		switch {
		case d == nil:
			return fmt.Errorf("estate %s is not up: the log says why", e.config.Load().Estate)
		case !d.ready():
			return fmt.Errorf("estate %s: no commit has been decided yet", e.config.Load().Estate)
		}
	}
	return nil
}

// keep keeps all of them until ctx ends, and then until each has written what it
// had to.
func (s *estates) Keep(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, e := range s.all {
		g.Go(func() error { return e.keep(ctx, len(s.all) == 1) })
	}
	return g.Wait()
}

// once brings all of them to what is declared, side by side. It writes for each
// what stands and what was done to out: a line of text, or a line of JSON, which is
// written also where an estate did not converge.
func (s *estates) Once(ctx context.Context, out io.Writer, form string, timeout time.Duration) error {
	errs := make([]error, len(s.all))
	var wg sync.WaitGroup
	for i, e := range s.all {
		wg.Go(func() {
			of := ""
			if len(s.all) > 1 {
				of = "estate " + e.config.Load().Estate + ": "
			}
			err := e.with(ctx, func(d *daemon) error {
				began := time.Now()
				left, err := d.once(ctx, timeout)
				for _, l := range left {
					fmt.Fprintln(os.Stderr, "not converged:", cli.VisibleLines(of+l.What))
				}
				if err == nil || left != nil {
					err = errors.Join(err, d.config.warnUncommitted(ctx, os.Stderr))
				}
				sum := d.summary(began)
				sum.Converged = err == nil
				if form == "json" {
					err = errors.Join(err, json.NewEncoder(out).Encode(sum))
				}
				switch {
				case err == nil && form != "json":
					_, err = fmt.Fprintf(out, "%sconverged %s\n", of, sum.text())
				case left != nil:
					err = fmt.Errorf("not converged %s; %w; next: %s", sum.text(), err, nextStep(left, sum.Held))
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
// go on, it is begun again here. A new configuration is begun with once the old
// one's daemon has written what it had to; if it cannot be begun with, the old one
// is gone on with.
func (e *estate) keep(ctx context.Context, alone bool) error {
	wait := beginAgain
	var before *config // what can be gone back to, until there was a daemon of what is now
	for {
		began := time.Now()
		run, stop := context.WithCancel(ctx)
		var next *config
		var listening sync.WaitGroup
		listening.Go(func() {
			select {
			case next = <-e.next:
				stop()
			case <-run.Done():
			}
		})
		begun := false
		err := e.with(run, func(d *daemon) error {
			begun, before = true, nil
			return d.loop.Run(run)
		})
		stop()
		listening.Wait()
		if ctx.Err() != nil {
			return err
		}
		switch {
		case next != nil:
			e.log.Info("goes on with the new configuration", "file", e.path)
			if begun {
				before = e.config.Load()
			}
			e.goOnWith(next)
			wait = beginAgain
			continue
		case !begun && before != nil:
			e.log.Error("the new configuration is right in itself, and cannot be begun with: goes on with the one before", "file", e.path, "error", err)
			e.wanted.Store(before)
			e.refused.Set(1)
			e.goOnWith(before)
			before = nil
			continue
		case alone:
			return err
		}
		if time.Since(began) > beginAgainIn {
			wait = beginAgain
		}
		e.log.Error("the estate is not kept; it is begun again, and the others go on", "error", err, "again_in", wait)
		select {
		case <-time.After(wait):
		case next := <-e.next:
			if begun {
				before = e.config.Load()
			}
			e.goOnWith(next)
		case <-ctx.Done():
			return nil
		}
		wait = min(2*wait, beginAgainIn)
	}
}

// goOnWith makes a configuration, all of which was found right, the one that counts.
func (e *estate) goOnWith(c *config) {
	e.config.Store(c)
	if err := e.openAPI(c); err != nil { // a token went missing this moment
		e.log.Error("the read API is not as configured", "error", err)
	}
}

// with lets a daemon of the estate do something.
func (e *estate) with(ctx context.Context, do func(*daemon) error) error {
	c := e.config.Load()
	d, err := newDaemon(ctx, c, e.log, e.looking, e.owed())
	if err != nil {
		return err
	}
	defer func() {
		c.pacer.Save(time.Now())
		d.close()
	}()
	if err := e.reg.Register(d.reg); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	defer e.reg.Unregister(d.reg)
	d.deliveries = e.deliveries
	e.up.Store(d)
	defer e.up.Store(nil)
	e.resume()
	return do(d)
}

// serveAPI answers GET /api/v1/… as the configuration has it now.
func (e *estate) serveAPI(w http.ResponseWriter, r *http.Request) {
	h := e.api.Load()
	if h == nil {
		api.NotServed(w, r)
		return
	}
	h.ServeHTTP(w, r)
}

// openAPI makes the read API; none where berth.yaml has no api section.
func (e *estate) openAPI(c *config) error {
	if c.API == nil {
		e.api.Store(nil)
		return nil
	}
	people := &people{tokens: c.API.Tokens, log: e.log}
	if err := people.read(time.Now()); err != nil {
		return err
	}
	h, err := api.New(api.Options{
		Estate: c.Estate, Administrators: c.Authority.Administrators, Source: e.view, People: people.now, Off: c.API.off(),
		Audit: e.audit, Log: e.log,
	})
	if err != nil {
		return err
	}
	e.api.Store(h)
	return nil
}

// audit records a use of an admin path. One that is answered is on the disk when
// it returns nil.
func (e *estate) audit(r audit.Record) error {
	e.log.Warn("the glass was broken", "actor", r.Actor, "reason", r.Reason, "verdict", r.Verdict, "permission", r.Permission, "key", r.Key.String(), "correlation_id", r.CorrelationID,
		"org_id", r.OrgID, "project_id", r.ProjectID, "app_slug", r.AppSlug)
	if r.Verdict == audit.Allowed {
		if err := e.glass.keep(r); err != nil {
			return err
		}
		if d := e.up.Load(); d != nil {
			d.loop.AuditOwed()
		}
		return nil
	}
	if d := e.up.Load(); d != nil {
		d.loop.Audit(r)
	}
	return nil
}

// owed are the records that the loop has to write besides its own; nil: nobody
// keeps any.
func (e *estate) owed() reconciler.Owed {
	if e.glass == nil {
		return nil
	}
	return e.glass
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
