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

// MuxOptions says what a Mux serves.
type MuxOptions struct {
	// GitHub answers POST /webhooks/github; nil: there is none.
	GitHub http.Handler
	// API answers everything below /api/; nil: there is none.
	API http.Handler
	// Estates answer everything below /estates/<name>/api/, by name, as API does
	// below /api/.
	Estates map[string]http.Handler
	// Nowhere answers paths of an API that is not there; nil: as any other.
	Nowhere http.Handler
	// Ready returns nil when Berth can do its work, else why not, in words that
	// hold no secret: GET /readyz shows them.
	Ready func() error
	// Metrics is shown at GET /metrics.
	Metrics prometheus.Gatherer
	Log     *slog.Logger
}

// Mux is Berth's HTTP surface.
//
//	POST /webhooks/github
//	GET  /health    200 while the process answers at all
//	GET  /readyz    200, or 503 and the reason in one line
//	GET  /metrics   in Prometheus' text format
//	     /api/…     the read API, which gets every path as it was sent
//	     /estates/<name>/api/…  that of one of several estates
func Mux(o MuxOptions) http.Handler {
	mux := http.NewServeMux()
	if o.GitHub != nil {
		mux.Handle("/webhooks/github", o.GitHub) // answers wrong methods itself, and counts them
	}
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		text(w, http.StatusOK, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := o.Ready(); err != nil {
			text(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		text(w, http.StatusOK, "ready")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(o.Metrics, promhttp.HandlerOpts{
		ErrorLog:      promLog{o.Log},
		ErrorHandling: promhttp.ContinueOnError, // one bad collector must not blind the others
		Timeout:       10 * time.Second,
	}))
	// Before the mux: that answers an unclean path by a redirect with a page that
	// repeats it, and the API says what is wrong in its own words.
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
		if rest, of := strings.CutPrefix(r.URL.Path, "/estates/"); o.Nowhere != nil && (of && strings.Contains(rest, "/api/") || strings.HasPrefix(r.URL.Path, "/api/")) {
			o.Nowhere.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// Server is an http.Server with bounds on everything a stranger may stretch,
// except on writing: an event stream lasts. Handlers bound their own bodies.
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

// promLog lets promhttp complain through slog.
type promLog struct{ log *slog.Logger }

func (l promLog) Println(v ...any) { l.log.Error("metrics", "error", fmt.Sprint(v...)) }
