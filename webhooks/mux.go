package webhooks

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// MuxOptions has the handlers of a Mux. Nil handlers are not served.
type MuxOptions struct {
	// Webhooks answer POST /webhooks/<forge>, by the forge's name.
	Webhooks map[string]http.Handler
	// API answers every path below /api/.
	API http.Handler
	// Estates answer every path below /estates/<name>/api/, by name, as API does
	// below /api/.
	Estates map[string]http.Handler
	// NoAPI answers paths of an API that is not served; nil: as any unknown path.
	NoAPI http.Handler
	// Ready returns nil once Berth is ready, else the reason, without secrets:
	// GET /readyz shows it.
	Ready func() error
	// Leads returns, by estate, nil while this daemon leads the estate, else the reason, without
	// secrets: GET /estates/<name>/leader shows it.
	Leads map[string]func() error
	// Metrics are served at GET /metrics.
	Metrics prometheus.Gatherer
	Log     *slog.Logger
}

// Mux is Berth's HTTP surface.
//
//	POST /webhooks/<forge>
//	GET  /health    200 while the process answers
//	GET  /readyz    200, or 503 and the reason in one line
//	GET  /metrics   in Prometheus' text format
//	GET  /estates/<name>/leader  200 while this daemon leads the estate, or 503 and the reason
//	     /api/…     the read API, which gets every path unchanged
//	     /estates/<name>/api/…  the read API of one of several estates
func Mux(o MuxOptions) http.Handler {
	mux := http.NewServeMux()
	for forge, h := range o.Webhooks {
		mux.Handle("/webhooks/"+forge, h) // answers wrong methods itself, and counts them
	}
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		text(w, http.StatusOK, "ok")
	})
	mux.HandleFunc("GET /readyz", state("ready", o.Ready))
	for name, leads := range o.Leads {
		mux.HandleFunc("GET /estates/"+name+"/leader", state("leads", leads))
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(o.Metrics, promhttp.HandlerOpts{
		ErrorLog:      promLog{o.Log},
		ErrorHandling: promhttp.ContinueOnError, // one failing collector must not hide the others
		Timeout:       10 * time.Second,
	}))
	// The API comes before the mux: the mux answers an unclean path with a redirect
	// page that repeats the path; the API answers with an error of its own.
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if o.API != nil && strings.HasPrefix(r.URL.Path, "/api/") {
			o.API.ServeHTTP(w, r)
			return
		}
		for name, api := range o.Estates {
			if prefix := "/estates/" + name; strings.HasPrefix(r.URL.Path, prefix+"/api/") {
				http.StripPrefix(prefix, api).ServeHTTP(w, r)
				return
			}
		}
		rest, isEstate := strings.CutPrefix(r.URL.Path, "/estates/")
		if o.NoAPI != nil && (isEstate && strings.Contains(rest, "/api/") || strings.HasPrefix(r.URL.Path, "/api/")) {
			o.NoAPI.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// state answers 200 and a word while check returns nil, else 503 and the reason.
func state(word string, check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := check(); err != nil {
			text(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		text(w, http.StatusOK, word)
	}
}

// Server returns an http.Server that bounds what a client can hold open, except
// writing: an event stream lasts. Handlers bound the bodies they read.
func Server(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

func text(w http.ResponseWriter, code int, line string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	fmt.Fprintln(w, line)
}

// promLog logs promhttp's errors with slog.
type promLog struct{ log *slog.Logger }

func (l promLog) Println(v ...any) {
	l.log.Error("metrics collection failed", "error", fmt.Sprint(v...))
}
