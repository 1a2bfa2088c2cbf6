package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"berth/cmd/internal/cli"
	"berth/webhooks"
	"berth/webhooks/api"
	"berth/webhooks/forge"
)

// Daemon works for one or more estates in one process, behind one address
// (requirement F8). Each estate has a controller of its own, so a failure in one
// estate does not affect the others.
type Daemon struct {
	all []*estate
	log *slog.Logger
	reg *prometheus.Registry
}

// New reads the configurations of the estates. It starts nothing.
func New(paths []string, log *slog.Logger) (*Daemon, error) { return builtIn().newDaemon(paths, log) }

// newDaemon is New with the forges of a registry.
func (r *registry) newDaemon(paths []string, log *slog.Logger) (*Daemon, error) {
	configs, err := r.readConfigs(paths)
	if err != nil {
		return nil, err
	}
	d := &Daemon{log: log, reg: prometheus.NewRegistry()}
	d.reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	limiters := newLimiters(configs[0].Repository.Directory, log)
	for i, c := range configs {
		c.limiter = limiters.of(c)
		e := &estate{
			file: newConfigFile(r, paths[i], c), limiters: limiters, log: log.With("estate", c.Estate),
			next: make(chan *Config, 1), webhookDelay: webhookDelay,
			reg: prometheus.WrapRegistererWith(prometheus.Labels{"estate": c.Estate}, d.reg),
		}
		e.config.Store(c)
		d.all = append(d.all, e)
	}
	return d, nil
}

// NewLogger returns a logger that writes text to a terminal and JSON elsewhere, from a level on.
// Durations carry their units in both.
func NewLogger(w io.Writer, level slog.Level) *slog.Logger {
	if cli.IsTerminal(w) {
		return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration {
			a.Value = slog.StringValue(a.Value.Duration().String())
		}
		return a
	}}))
}

// Check reads the configurations and the files that they name, and nothing else. It
// writes a line for each valid one.
func Check(out io.Writer, paths []string) error { return builtIn().check(out, paths) }

// check is Check with the forges of a registry.
func (r *registry) check(out io.Writer, paths []string) error {
	all, err := r.readConfigs(paths)
	if err != nil {
		return err
	}
	var wrong []error
	for i, c := range all {
		located, err := r.locator(paths[i])
		if err != nil {
			return err
		}
		if err := errors.Join(c.checkFiles(), c.weakSecrets()); err != nil {
			var lines []string
			for line := range strings.Lines(err.Error()) {
				lines = append(lines, located("", strings.TrimSpace(line)))
			}
			wrong = append(wrong, fmt.Errorf("configuration: %s", strings.Join(lines, "\n")))
			continue
		}
		for _, w := range c.warnings(paths[i]) {
			if _, err := fmt.Fprintln(out, located("warning: ", w)); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintf(out, "%s: valid; estate %s, repository %s\n", paths[i], c.Estate, c.Repository.URL); err != nil {
			return err
		}
	}
	return errors.Join(wrong...)
}

// Serve reconciles the estates, takes deliveries and answers requests until ctx
// ends. It reads the configurations again at each signal on reread, and when their
// files change.
func (d *Daemon) Serve(ctx context.Context, reread <-chan os.Signal) error {
	handler, names, err := d.handler()
	if err != nil {
		return err
	}
	reload, err := newReloader(d)
	if err != nil {
		return err
	}
	server := webhooks.Server(handler, d.log)
	listener, err := net.Listen("tcp", d.all[0].config.Load().address())
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	answer := server.Serve
	if reload.certificate != nil {
		server.TLSConfig = reload.certificate.config()
		answer = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
	}
	d.log.Info("serving", "address", listener.Addr().String(), "tls", reload.certificate != nil, "estates", names)

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.follow(ctx) })
	g.Go(func() error { return reload.run(ctx, reread) })
	for _, e := range d.all {
		if e.deliveries != nil {
			g.Go(func() error { return newGapFiller(e).run(ctx, e.forgeLog) })
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
		for _, e := range d.all {
			if h := e.api.Load(); h != nil {
				h.EndStreams() // they would keep the server up
			}
		}
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err := server.Shutdown(stop); !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		// A client is slow or silent. The forge repeats an unacknowledged delivery.
		return server.Close()
	})
	err = g.Wait()
	for _, e := range d.all {
		if e.deliveries != nil {
			err = errors.Join(err, e.deliveries.Close())
		}
		err = errors.Join(err, e.breakGlass.Close())
	}
	return err
}

// handler opens the files and connections for answering requests, and returns the
// handler of all estates.
func (d *Daemon) handler() (_ http.Handler, names []string, err error) {
	o := webhooks.MuxOptions{Estates: map[string]http.Handler{}, NoAPI: http.HandlerFunc(api.NotServed), Ready: d.ready,
		Leads: map[string]func() error{}, Metrics: d.reg, Log: d.log}
	receivers := map[*forge.Kind][]webhooks.Receiver{}
	for _, e := range d.all {
		c := e.config.Load()
		names = append(names, c.Estate)
		if c.Forge != nil {
			if err := e.openDeliveries(c); err != nil {
				return nil, nil, fmt.Errorf("estate %s: %w", c.Estate, err)
			}
			receivers[c.kind] = append(receivers[c.kind], webhooks.Receiver{
				Estate: c.Estate, Take: e.take, Secrets: func() ([][]byte, error) { return e.config.Load().webhookSecrets() },
			})
		}
		e.breakGlass = openBreakGlassLog(c, e.log)
		if err := e.openAPI(c); err != nil {
			return nil, nil, fmt.Errorf("estate %s: %w", c.Estate, err)
		}
		o.Leads[c.Estate] = e.leads
		if o.Estates[c.Estate] = http.HandlerFunc(e.serveAPI); len(d.all) == 1 {
			o.API = o.Estates[c.Estate]
		}
	}
	o.Webhooks = map[string]http.Handler{}
	for kind, all := range receivers {
		h, err := webhooks.Handler(webhooks.Options{Format: kind.Webhook, Receivers: all, Log: d.log, Registry: d.reg})
		if err != nil {
			return nil, nil, err
		}
		o.Webhooks[kind.Name] = h
	}
	return webhooks.Mux(o), names, nil
}

// ready returns an error unless each controller has decided a commit.
func (d *Daemon) ready() error {
	for _, e := range d.all {
		c := e.running.Load()
		switch {
		case c == nil:
			return fmt.Errorf("estate %s is not up: the log says why", e.config.Load().Estate)
		case c.loop.LeaderURL() != "":
			return fmt.Errorf("estate %s: standing by; %s leads", e.config.Load().Estate, c.loop.LeaderURL())
		case !c.ready():
			return fmt.Errorf("estate %s: no commit has been decided yet", e.config.Load().Estate)
		}
	}
	return nil
}

// Follow reconciles the estates until ctx ends and each has recorded its running
// work. It serves no requests.
func (d *Daemon) Follow(ctx context.Context) error {
	for _, e := range d.all {
		c := e.config.Load()
		e.log.Info("reconciling until interrupted (Ctrl-C); berth sync --once ends when everything has converged", "branch",
			c.Repository.Branch, "poll", time.Duration(c.Poll))
	}
	return d.follow(ctx)
}

func (d *Daemon) follow(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, e := range d.all {
		g.Go(func() error { return e.follow(ctx, len(d.all) == 1) })
	}
	return g.Wait()
}
