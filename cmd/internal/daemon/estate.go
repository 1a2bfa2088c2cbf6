package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/reconciler/plan"
	"berth/schema/audit"
	"berth/webhooks/api"
)

// estate is one estate of the daemon. It outlives its controllers: deliveries that
// arrive while none runs are kept for the next.
type estate struct {
	file     *configFile
	log      *slog.Logger
	limiters *limiters // of all estates of the process
	reg      prometheus.Registerer

	config  atomic.Pointer[Config]     // in use
	next    chan *Config               // to be used next
	running atomic.Pointer[controller] // nil: none could be started yet
	api     atomic.Pointer[api.API]    // nil: no read API is configured

	deliveries   *deliveryQueue // nil: no forge is configured, or Serve is not running
	breakGlass   *breakGlassLog // nil: Serve is not running
	webhookDelay time.Duration  // after which a missing webhook counts as lost
}

// Delays before an estate that failed is started again.
const (
	restartDelay    = time.Second
	maxRestartDelay = time.Minute
)

// follow reconciles the estate until ctx ends. If it fails before, that is the error
// if the estate is alone: the service manager restarts the process. Among several
// estates it is restarted here, and the others continue.
//
// A new configuration is used once the old controller has recorded its running work.
// If it cannot be started, the old one is used again.
func (e *estate) follow(ctx context.Context, alone bool) error {
	wait := restartDelay
	var fallback *Config // until a controller has run with the configuration in use
	for {
		began := time.Now()
		next, started, err := e.runUntilReload(ctx)
		if started {
			fallback = nil
		}
		reload := func(next *Config) {
			if started {
				fallback = e.config.Load()
			}
			e.use(next)
		}
		if ctx.Err() != nil {
			return err
		}
		switch {
		case next != nil:
			e.log.Info("configuration reloaded", "file", e.file.path)
			reload(next)
			wait = restartDelay
			continue
		case !started && fallback != nil:
			e.log.Error("valid configuration failed to start; using the previous one", "file", e.file.path, "error", err)
			e.use(fallback)
			e.file.reject(fallback)
			fallback = nil
			continue
		case alone:
			return err
		}
		if time.Since(began) > maxRestartDelay {
			wait = restartDelay
		}
		e.log.Error("estate stopped; restarting, other estates continue", "error", err, "again_in", wait)
		select {
		case <-time.After(wait):
		case next := <-e.next:
			reload(next)
		case <-ctx.Done():
			return nil
		}
		wait = min(2*wait, maxRestartDelay)
	}
}

// runUntilReload runs a controller until it fails, ctx ends or there is a new
// configuration, which it returns.
func (e *estate) runUntilReload(ctx context.Context) (next *Config, started bool, err error) {
	run, stop := context.WithCancel(ctx)
	received := make(chan struct{})
	go func() {
		defer close(received)
		select {
		case next = <-e.next:
			stop()
		case <-run.Done():
		}
	}()
	err = e.withController(run, func(c *controller) error {
		started = true
		return c.loop.Run(run)
	})
	stop()
	<-received
	return next, started, err
}

// use makes a configuration, which was found valid, the one in use.
func (e *estate) use(c *Config) {
	e.config.Store(c)
	if err := e.openAPI(c); err != nil { // a token was removed since the check
		e.log.Error("read API keeps its previous configuration", "error", err)
	}
}

// withController calls do with a new controller, and closes it.
func (e *estate) withController(ctx context.Context, do func(*controller) error) error {
	c := e.config.Load()
	h := hooks{reconciling: e.reconciling, peers: c.peers()}
	if e.deliveries != nil {
		h.reporting = e.deliveries.reruns.reporting
	}
	if e.breakGlass != nil {
		h.owed = e.breakGlass
	}
	d, err := newController(ctx, c, e.log, h)
	if err != nil {
		return err
	}
	defer func() {
		if c.limiter != nil {
			c.limiter.Save(time.Now())
		}
		d.close()
	}()
	if err := e.reg.Register(d.reg); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	defer e.reg.Unregister(d.reg)
	e.running.Store(d)
	defer e.running.Store(nil)
	if e.deliveries != nil {
		for _, w := range e.deliveries.Pending() { // accepted by an earlier process
			e.wake(w)
		}
	}
	return do(d)
}

// serveAPI answers GET /api/v1/… with the API of the accepted berth.yaml.
func (e *estate) serveAPI(w http.ResponseWriter, r *http.Request) {
	h := e.api.Load()
	if h == nil {
		api.NotServed(w, r)
		return
	}
	h.ServeHTTP(w, r)
}

// openAPI makes the read API if the configuration has an api section.
func (e *estate) openAPI(c *Config) error {
	if c.API == nil {
		e.replaceAPI(nil)
		return nil
	}
	people := &personTokens{tokens: c.API.Tokens, log: e.log}
	if err := people.read(time.Now()); err != nil {
		return err
	}
	var identify func(context.Context, string) (string, error)
	if c.API.OIDC != nil {
		provider, err := newIdentityProvider(*c.API.OIDC)
		if err != nil {
			return err
		}
		identify = provider.identify
	}
	h, err := api.New(api.Options{
		Estate: c.Estate, Administrators: c.Authority.Administrators, Source: e.view, People: people.now, Identify: identify,
		Off:   c.API.off(),
		Audit: e.audit, Refused: e.refused, Live: e.live, Events: eventLog{e}, Leader: e.leaderURL, Log: e.log,
	})
	if err != nil {
		return err
	}
	e.replaceAPI(h)
	return nil
}

// replaceAPI makes h answer from now on. The streams of events of the previous API end: its tokens and administrators
// may be others.
func (e *estate) replaceAPI(h *api.API) {
	if previous := e.api.Swap(h); previous != nil {
		previous.EndStreams()
	}
}

// audit records a request for break-glass access. If it was allowed, the record is on the
// disk when audit returns nil.
func (e *estate) audit(r audit.Record) error {
	e.log.Warn("break-glass access requested", "actor", r.Actor, "reason", r.Reason, "verdict", r.Verdict, "permission", r.Permission,
		"key", r.Key.String(), "correlation_id", r.CorrelationID,
		"org_id", r.OrgID, "project_id", r.ProjectID, "app_slug", r.AppSlug)
	d := e.running.Load()
	if r.Verdict != audit.Allowed {
		if d != nil {
			d.loop.Audit(r)
		}
		return nil
	}
	if err := e.breakGlass.add(r); err != nil {
		return err
	}
	if d != nil {
		d.loop.AuditOwed()
	}
	return nil
}

// refused records a request of a service account that the read API refused.
func (e *estate) refused(r audit.Record) {
	e.log.Info("request of a service account refused", "actor", r.Actor, "reason", r.Reason, "permission", r.Permission, "correlation_id",
		r.CorrelationID,
		"org_id", r.OrgID, "project_id", r.ProjectID, "app_slug", r.AppSlug)
	if d := e.running.Load(); d != nil {
		d.loop.Audit(r)
	}
}

// view returns the state that the read API shows, and false before the first one.
func (e *estate) view() (plan.View, bool) {
	d := e.running.Load()
	if d == nil {
		return plan.View{}, false
	}
	return d.loop.View()
}
